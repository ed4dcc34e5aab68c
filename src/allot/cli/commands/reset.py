"""`allot reset`: stops the cluster and removes all its data."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from allot.cli.data_dir import data_dir_option
from allot.cli.errors import Refused, Unreadable
from allot.cli.output import talk
from allot.cli.up.ending import end_cluster
from allot.cli.up.instance import Instance
from allot.cli.up.kubeconfigs import remove_context


@click.command()
@data_dir_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def reset(data_dir: Path, yes: bool) -> None:
    """Stop the cluster of a data directory and remove all its data: objects, keys, certificates, logs.

    \b
    Examples:
      allot reset
      allot reset --data-dir ./data --yes
    """
    if not data_dir.exists():
        talk(f"nothing to remove: {data_dir}")
        return
    if not Instance(data_dir).is_ours():
        raise Refused(f"{data_dir}: not a data directory of allot, nothing was removed")
    if not yes and not _agrees(data_dir):
        raise Refused("nothing was removed")
    end_cluster(data_dir)
    merged = remove_context(data_dir)
    try:
        shutil.rmtree(data_dir)
    except OSError as error:
        raise Unreadable(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
    talk(f"removed: {data_dir}{f', and the context allot from {merged}' if merged is not None else ''}")


def _agrees(data_dir: Path) -> bool:
    try:
        return click.confirm(f"Remove {data_dir} with all objects, keys and logs?", err=True)
    except click.Abort as ended:
        if isinstance(ended.__context__, EOFError):
            talk("")
            raise Refused("nothing was removed: no answer", "to skip the confirmation, use --yes") from None
        raise
