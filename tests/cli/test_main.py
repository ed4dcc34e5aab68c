"""Help, usage, exit codes, and the command as a real process."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from allot import __version__
from allot.cli.main import cli
from cli.command import allot
from cli.manifest_texts import claim, device_class, resource_slice, text


def commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    """All of them, with what they are below."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)


def process(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "allot", *arguments], capture_output=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_the_version_is_printed() -> None:
    assert allot("--version").stdout == f"allot {__version__}\n"


@pytest.mark.slow
def test_every_command_has_help_with_examples() -> None:
    for command in commands(cli):
        shown = allot(*command, "--help").stdout
        assert re.search(rf"Examples:.*^ .*allot {' '.join(command)}", shown, re.MULTILINE | re.DOTALL), command


def test_without_a_command_the_help_is_shown() -> None:
    result = allot()
    assert result.code == 2
    assert "Commands:" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "error: no such command 'nope'"),
        (["validate"], "error: missing argument 'FILE...'"),
        (["validate", "-o", "xml", "f"], "error: invalid value for '-o' / '--output': 'xml' is not one of"),
        (["allocate", "--nope"], "error: no such option"),
        (["allocate", "--policy", "best", "f"], "'best' is not one of 'first-fit', 'pack'"),
        (["validate", "no-such-file.yaml"], "error: no-such-file.yaml: no such file or directory"),
    ],
)
def test_wrong_usage_is_one_error_line_and_a_hint(arguments: list[str], message: str) -> None:
    result = allot(*arguments)
    assert result.code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("error: ") == 1


def test_control_characters_from_a_file_are_shown_not_obeyed() -> None:
    result = allot("validate", "-", stdin=text(device_class("\x1b[31mred")))
    assert result.code == 1
    assert "\x1b" not in result.stdout.replace("\x1b[31mDeviceClass", "")


def test_very_long_values_are_cut_in_messages() -> None:
    result = allot("validate", "-", stdin='{"apiVersion": "v1", "kind": "' + "x" * 1_000_000 + '"}')
    assert result.code == 1
    assert len(result.stdout) + len(result.stderr) < 20_000


@pytest.mark.slow
def test_it_runs_as_a_module_and_as_a_console_script() -> None:
    manifests = text(device_class(), resource_slice(), claim()).encode()
    as_module = process("allocate", "-", input=manifests)
    assert (as_module.returncode, as_module.stderr) == (0, b"")
    assert b"gpu.example.com/n1/gpu-0" in as_module.stdout
    script = Path(sys.executable).with_name("allot")
    if script.exists():
        as_script = subprocess.run([script, "allocate", "-"], input=manifests, capture_output=True, check=False)
        assert as_script.stdout == as_module.stdout


@pytest.mark.slow
def test_colour_is_for_terminals_only() -> None:
    done = process("validate", "-", input=text(claim()).encode())
    assert b"\x1b" not in done.stdout + done.stderr


def terminal_text(reader: int) -> bytes:
    """What was written to a terminal whose other end is closed."""
    said = b""
    try:
        while chunk := os.read(reader, 65536):
            said += chunk
    except OSError:
        pass  # How Linux says that the other end is closed.
    os.close(reader)
    return said


@pytest.mark.slow
def test_no_color_is_honoured_on_a_terminal() -> None:
    def on_a_terminal(environment: dict[str, str]) -> bytes:
        reader, writer = os.openpty()
        subprocess.run(
            [sys.executable, "-m", "allot", "validate", "-"],
            input=text(claim()).encode(),
            stdout=writer,
            env={**os.environ, **environment},
            check=False,
        )
        os.close(writer)
        return terminal_text(reader)

    assert b"\x1b[32m" in on_a_terminal({"NO_COLOR": ""})
    assert b"\x1b" not in on_a_terminal({"NO_COLOR": "1"})


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_and_leaves_the_answers_alone() -> None:
    reader, writer = os.openpty()
    manifests = text(*(claim(f"c{number}") for number in range(50))).encode()
    done = subprocess.run(
        [sys.executable, "-m", "allot", "validate", "-", "-o", "json"],
        input=manifests,
        stdout=subprocess.PIPE,
        stderr=writer,
        env={**os.environ, "TERM": "xterm"},
        check=False,
    )
    os.close(writer)
    assert b"validating" in terminal_text(reader)
    assert len(done.stdout.splitlines()) == 50


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    manifests = text(*(claim(f"c{number}") for number in range(3000))).encode()
    producer = subprocess.Popen(
        [sys.executable, "-m", "allot", "validate", "-", "-o", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert producer.stdin is not None
    assert producer.stdout is not None
    assert producer.stderr is not None
    producer.stdout.close()
    producer.stdin.write(manifests)
    producer.stdin.close()
    assert producer.stderr.read() == b""
    producer.stderr.close()
    assert producer.wait() == 141


class InterruptedStream(io.BytesIO):
    """Somebody presses Ctrl-C while this is read."""

    def read(self, size: int | None = -1) -> bytes:
        # The test runner asks for nothing, to see what kind of stream this is.
        if size == 0:
            return b""
        raise KeyboardInterrupt


def test_an_interrupt_ends_the_command_without_a_traceback() -> None:
    result = allot("validate", "-", stdin=InterruptedStream())
    assert (result.code, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.slow
def test_a_terminal_that_cannot_show_a_character_gets_an_escape() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = process("validate", "-", input=text(claim("snow\u2603")).encode(), env=environment)
    assert done.returncode == 1
    assert rb"ml/snow\u2603" in done.stdout


def test_help_names_every_command() -> None:
    listed = re.findall(r"^  (\w+) ", allot("--help").stdout, re.MULTILINE)
    assert set(cli.list_commands(click.Context(cli))) <= set(listed)


@pytest.mark.slow
def test_listing_the_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from allot.cli.main import run; code = run(['--help'])\n"
        "print([name for name in sys.modules if name.startswith('allot.cli.commands.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "Commands:" in done.stdout
    assert done.stderr == "[]\n"
