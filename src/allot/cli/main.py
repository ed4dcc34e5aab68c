"""The entry point: the command group, and the one place where failures become messages and exit codes."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import PurePath
from types import ModuleType
from typing import NoReturn

import click
from click.shell_completion import CompletionItem, shell_complete

from allot import __version__
from allot.cli.errors import CommandError, exit_code_of
from allot.cli.output import talk
from allot.reading.errors import ReadingError

EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
COMPLETION_VARIABLE = "_ALLOT_COMPLETE"
_SHOW_TRACEBACK = "ALLOT_TRACEBACK"
# The lines of `allot --help`: reading them from the commands would import all of them, which takes seconds.
_COMMANDS = {
    "allocate": "Show which devices claims get, or why not.",
    "apiserver": "Run the API server.",
    "apply": "Convert what is safe, lint, and apply.",
    "autoscaler": "Run the autoscaler, which adds and removes nodes.",
    "bench": "Measure the control plane.",
    "cel": "Check a device selector, its cost, and which devices it selects.",
    "completion": "Print a completion script for a shell.",
    "controllers": "Run the controllers.",
    "convert": "Convert manifests of any API version to the current one.",
    "dashboard": "Show a cluster in the browser.",
    "demo": "Show what Dynamic Resource Allocation does, step by step.",
    "down": "Stop the cluster on this machine.",
    "driver": "Create and test drivers.",
    "explain": "Explain why a pod does not run, and what would help.",
    "export": "Write a cluster's objects so that they can be applied to another one.",
    "get": "List every device, with its attributes and holders.",
    "guard": "Run the guard, which prevents double allocation of devices.",
    "install": "Install parts of allot on a cluster.",
    "lint": "Find mistakes in manifests before you apply them.",
    "node": "Run the agent of a node.",
    "plan": "Show how many more copies of a manifest fit.",
    "queues": "Show what the queues of teams deserve, get, hold and wait for.",
    "reset": "Stop the cluster and remove its data.",
    "scheduler": "Run the scheduler.",
    "snapshot": "Write what explain, top, tree, plan and lint need to know about a cluster.",
    "status": "Show the state of the cluster on this machine.",
    "top": "Show which devices are free and in use, and who holds them.",
    "tree": "Show a pod with its claims, devices and node, and the reverse.",
    "uninstall": "Remove what allot install has installed.",
    "up": "Start a cluster on this machine.",
    "validate": "Check whether the API server would accept objects.",
}


class _Commands(click.Group):
    """Imports a command on demand, so that the others cost nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature is click's
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(_imported(f"allot.cli.commands.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command), f"{cmd_name} is not a command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """By name alone: click would import every command."""
        return [CompletionItem(name) for name in _COMMANDS if name.startswith(incomplete)]


def _imported(name: str) -> ModuleType:
    """A module. What modules make stays: looking for garbage in it takes a tenth of the time in which a large command starts."""
    if name in sys.modules:
        return sys.modules[name]
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="allot", message="%(prog)s %(version)s")
def cli() -> None:
    """Kubernetes Dynamic Resource Allocation: claim devices by what they are.

    A control plane, a scheduler, controllers, a node agent and drivers, together or one by one; and answers from files,
    without a cluster.

    \b
    Examples:
      allot demo                                   what it is, step by step
      allot up --node h100x8 --node t4=3           a cluster with simulated GPUs for kubectl
      allot explain pod/train                      why a pod waits, and what would help
      allot lint manifests/                        what is wrong with manifests
      allot convert old.yaml                       convert to the current API
      allot allocate cluster/ claim.yaml           which devices the claim gets, and on which node
      allot cel 'device.driver == "gpu.example.com"' -f slices.yaml
      kubectl get resourceslices,deviceclasses,nodes -o yaml | allot allocate - claim.yaml
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and exits."""
    # Reading a large file creates millions of objects and no cycles; garbage collection would take a third of the time.
    gc.set_threshold(100_000, 50, 1000)
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding cannot show must not end the command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    completing = os.environ.get(COMPLETION_VARIABLE)
    if completing:
        sys.exit(shell_complete(cli, {}, "allot", COMPLETION_VARIABLE, completing))
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; the exit code."""
    try:
        # Not cli.main(), which has its own mind about broken pipes and exit codes.
        with cli.make_context(_program(), list(sys.argv[1:] if arguments is None else arguments)) as context:
            code = cli.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except (CommandError, ReadingError) as error:
        return _fail(error.message, exit_code_of(error), error.hint)
    except click.ClickException as error:
        return _usage_error(error)
    except (click.Abort, KeyboardInterrupt):
        talk("interrupted")
        return EXIT_INTERRUPTED
    except MemoryError:
        return _fail("not enough memory for this input", EXIT_USAGE)
    except OSError as error:
        return _output_failed(error)
    except Exception as error:
        if os.environ.get(_SHOW_TRACEBACK):
            raise
        hint = f"this is a bug in allot; {_SHOW_TRACEBACK}=1 shows where it happened"
        return _fail(f"internal error: {type(error).__name__}: {error}", EXIT_BUG, hint)


def _program() -> str:
    """The program's name, which may be a kubectl plugin."""
    return "kubectl allot" if PurePath(sys.argv[0]).name == "kubectl-allot" else "allot"


def _fail(message: str, code: int, hint: str | None = None) -> int:
    talk(f"error: {message}")
    if hint is not None:
        talk(f"hint: {hint}")
    return code


def _usage_error(error: click.ClickException) -> int:
    message = error.format_message()
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        talk(message)
        return EXIT_USAGE
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"{context.command_path} --help shows the usage" if context is not None else None
    return _fail(message[:1].lower() + message[1:].removesuffix("."), EXIT_USAGE, hint)


def _output_failed(error: OSError) -> int:
    """Commands turn read failures into Unreadable, so the remaining errors concern the output."""
    if error.errno == errno.EPIPE:
        # The reader of our output has gone. The interpreter would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return _fail(f"cannot write the answer: {(error.strerror or str(error)).lower()}", EXIT_USAGE)
