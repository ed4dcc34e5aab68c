"""The errors of commands, and how they are worded.

A failure is one line, `error: <object>: ...`, that names the object, the value and what was expected, and at most one
`hint:` line. `allot.cli.main` is the only place that prints these and turns them into exit codes.
"""

from __future__ import annotations

from allot.reading.errors import NotReached, ReadingError, Unreadable

__all__ = ["EXIT_UNREACHABLE", "CommandError", "Refused", "Unreadable", "exit_code_of", "printable", "shortened"]

MESSAGE_CHARACTERS_MAX = 4000
EXIT_UNREACHABLE = 3
# Of failures to read; the others are a server's "no".
_EXIT_CODES = ((Unreadable, 2), (NotReached, EXIT_UNREACHABLE))


class CommandError(Exception):
    """Ends the command with a message; the subclass decides the exit code."""

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refused(CommandError):
    """The input was understood and the answer is no."""

    exit_code = 1


def exit_code_of(error: CommandError | ReadingError) -> int:
    """What the command ends with."""
    if isinstance(error, CommandError):
        return error.exit_code
    return next((code for type_, code in _EXIT_CODES if isinstance(error, type_)), Refused.exit_code)


def printable(text: str) -> str:
    """Text that is safe on a terminal: control characters from a file are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shortened(text: str, characters_max: int = MESSAGE_CHARACTERS_MAX) -> str:
    """The text, shortened in the middle if a value from the input makes it too long to read."""
    if len(text) <= characters_max:
        return text
    half = characters_max // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}... ({left_out} characters left out) ...{text[-half:]}"
