"""The data directory option; a light module, because `allot down` and similar commands need nothing else of a server."""

from __future__ import annotations

import os
from pathlib import Path

import click

ADMIN_KUBECONFIG = "admin.kubeconfig"


def default_data_dir() -> Path:
    """The default data directory: $XDG_DATA_HOME/allot."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "allot"


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=default_data_dir,
    show_default="$XDG_DATA_HOME/allot",
    help="Where to keep objects, keys and certificates.",
)
