"""Data tables of the package: YAML files beside the code that reads them.

A file is decoded into typed values on first use, not at import: a command pays only for the tables that it uses.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TypeVar

import msgspec

Table = TypeVar("Table")


def read_data_file(package: str, name: str, type_: type[Table]) -> Table:
    """Decode a package's data file. A file that does not fit its type is a bug of ours: msgspec's error names the place."""
    return msgspec.yaml.decode(files(package).joinpath(name).read_bytes(), type=type_)
