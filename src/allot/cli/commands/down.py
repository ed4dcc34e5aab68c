"""`allot down`: stops the cluster that `allot up` started."""

from __future__ import annotations

from pathlib import Path

import click

from allot.cli.data_dir import data_dir_option
from allot.cli.output import talk
from allot.cli.up.ending import end_cluster


@click.command()
@data_dir_option
def down(data_dir: Path) -> None:
    """Stop the cluster of a data directory, in the background or in another terminal, and wait until it has ended.

    The programs of its pods also end. Objects are kept: the next `allot up` continues with them.

    \b
    Examples:
      allot down
      allot down --data-dir ./data
    """
    talk("stopped" if end_cluster(data_dir) else f"not running: {data_dir}")
