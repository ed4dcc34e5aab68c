"""`python -m release.dist FOLDER`: wheel, source distribution, chart, bill of materials and checksums of this version.

Times in the files are those of the last commit, so that a second build gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from release.bill_of_materials import bill_of_materials, read_lock

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "src" / "allot" / "requirements.txt"
CHART = ROOT / "src" / "allot" / "installation" / "chart"
# Before 1980 a wheel cannot be.
_EARLIEST = 315532800


def main() -> int:
    """Make everything again."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # Of earlier versions; what else is there is someone's.
    for old in (each for name in ("allot_dra-*", "allot-dra-*", "allot-chart-*") for each in folder.glob(name)):
        old.unlink()
    version = project_version()
    epoch = source_date()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "sdist", "-t", "wheel"],
        cwd=ROOT,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    write_chart(folder / f"allot-chart-{version}.tgz", epoch)
    bill = bill_of_materials(version, read_lock(LOCK))
    (folder / f"allot-dra-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    unknown = [each["name"] for each in bill["components"] if "licenses" not in each]
    if unknown:
        sys.stderr.write(f"note: licences not known here: {', '.join(unknown)}\n")
    write_checksums(folder)
    return 0


def project_version() -> str:
    """The version that pyproject.toml says."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def source_date() -> int:
    """When the sources were last changed, in seconds; a date long ago if no one knows."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    return max(int(told.stdout), _EARLIEST) if told.returncode == 0 and told.stdout.strip() else _EARLIEST


def write_chart(path: Path, epoch: int) -> None:
    """The chart as `helm package` writes it: all files below one folder of its name."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(CHART.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                entry = tarfile.TarInfo(f"allot/{file.relative_to(CHART).as_posix()}")
                entry.size, entry.mode, entry.mtime = file.stat().st_size, 0o644, epoch
                with file.open("rb") as content:
                    tar.addfile(entry, content)
    with path.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=epoch) as packed:
        packed.write(plain.getvalue())


def write_checksums(folder: Path) -> None:
    """SHA256SUMS of all other files, for `sha256sum --check`."""
    files = sorted(each for each in folder.iterdir() if each.is_file() and each.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(main())
