"""Output of answers: tables, JSON lines, YAML documents, and progress bars.

Only answers go to stdout. Color is only an accent: it disappears if stdout is not a terminal or
NO_COLOR is set, and every table is readable without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Any

import click
import msgspec

from allot.cli.errors import printable, shortened
from allot.reading.listener import Listener
from allot.yaml_values.writer import yaml_text

CELL_CHARACTERS_MAX = 400
_COLUMN_GAP = "   "


class OutputFormat(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


output_option = click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice([output_format.value for output_format in OutputFormat]),
    default=OutputFormat.TABLE.value,
    show_default=True,
    help="The output format.",
    callback=lambda _context, _parameter, value: OutputFormat(value),
)


def write(text: str = "", colour: str | None = None) -> None:
    """A line of a text answer, on stdout."""
    safe = shortened(printable(text))
    _emit(click.style(safe, fg=colour) if colour else safe)


def _emit(text: str) -> None:
    click.echo(text, color=_colour_choice())


def talk(text: str) -> None:
    """A line about the answer, on stderr."""
    click.echo(shortened(printable(text)), err=True)


def _colour_choice() -> bool | None:
    """None lets click decide whether the stream is a terminal."""
    return False if os.environ.get("NO_COLOR") else None


def write_value(value: Mapping[str, Any], output: OutputFormat) -> None:
    """One value of the answer: a line of JSON, or a YAML document that ends the previous one."""
    if output is OutputFormat.JSON:
        _emit(msgspec.json.encode(value).decode())
    else:
        _emit("---\n" + yaml_text(value).removesuffix("\n"))


def write_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], colours: Mapping[str, str] | None = None
) -> None:
    """Rows under headers as kubectl prints them; `colours` maps cell texts to colors."""
    shown = [[_cell(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(headers))]
    for row in shown:
        filled = max((column for column, cell in enumerate(row) if cell), default=-1)
        padded = [
            cell.ljust(widths[column]) + _COLUMN_GAP if column < filled else cell for column, cell in enumerate(row)
        ]
        accented = [
            click.style(text, fg=colours[cell]) if colours and cell in colours else text
            for cell, text in zip(row, padded, strict=True)
        ]
        _emit("".join(accented[: filled + 1]))


def _cell(text: str) -> str:
    return shortened(printable(" ".join(text.split("\n"))), CELL_CHARACTERS_MAX)


@contextmanager
def progress(description: str, total: int, *, writes: bool = False) -> Iterator[Callable[[], None]]:
    """A bar on stderr when that is a terminal; the yielded function moves it by one.

    `writes`: answers are written meanwhile, so there is no bar where they would appear on the same terminal.
    """
    if not sys.stderr.isatty() or total < 2 or (writes and sys.stdout.isatty()):
        yield lambda: None
        return
    # Imported late: it takes longer than most commands run.
    from rich.console import Console
    from rich.progress import Progress

    # Without redirect_stdout=False, rich would send the answers to its own console, which is stderr.
    with Progress(console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(description, total=total)
        yield lambda: bar.advance(task)


class _Terminal:
    """Reports the progress of reading on stderr."""

    def note(self, text: str) -> None:
        talk(f"note: {text}")

    def warn(self, text: str) -> None:
        talk(f"warning: {text}")

    def progress(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        return progress(what, total)


TERMINAL: Listener = _Terminal()
