"""`allot completion`: prints shell completion scripts."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from allot.cli.main import COMPLETION_VARIABLE


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print a script that lets a shell complete the commands and options of allot.

    \b
    Examples:
      source <(allot completion bash)                 this shell; put it in ~/.bashrc for all
      source <(allot completion zsh)                  the same in ~/.zshrc
      allot completion fish > ~/.config/fish/completions/allot.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no completion of {shell}"
    root = click.get_current_context().find_root().command
    # Not source(), which checks the shell of this machine: the script may be for another machine.
    made = kind(root, {}, "allot", COMPLETION_VARIABLE)
    click.echo(made.source_template % made.source_vars())
