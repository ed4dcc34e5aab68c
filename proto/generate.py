"""Generates src/allot/wire from the .proto files beside this script. Run by hand after a change; the result is committed.

.venv/bin/python proto/generate.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"


def main() -> int:
    """Generate messages and their types for each folder of .proto files."""
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    for folder in sorted(path for path in HERE.iterdir() if path.is_dir()):
        # Imported under the name of the package that they land in, so that generated imports are right as they are.
        names = [f"allot/wire/{file.name}" for file in sorted(folder.glob("*.proto"))]
        arguments = [
            f"-Iallot/wire={folder}",
            f"-I{well_known}",
            f"--python_out={SOURCE}",
            f"--pyi_out={SOURCE}",
            *names,
        ]
        if code := protoc.main(["protoc", *arguments]):
            return int(code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
