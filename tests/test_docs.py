"""The documentation is true: its commands run and print what the pages say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from allot.cli.main import cli
from allot.core.allocation import ALL_FEATURES, DEFAULT_FEATURES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import console  # noqa: E402

COMMANDS = cli.list_commands(click.Context(cli))
PAGES = [page for page in console.pages() if any(not each.is_set_up for each in console.commands_on(page))]
MADE = [
    (page, command)
    for page in console.pages()
    for command in console.commands_on(page)
    if command.line.startswith("make ")
]


@pytest.mark.slow
# A page about autoscalers waits for them, and they look every 15 seconds.
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_what_the_page_says(page: Path) -> None:
    commands = [command for command in console.commands_on(page) if not command.is_set_up]
    if any("kubectl " in command.line for command in commands) and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with console.place(page) as place:
        for command in commands:
            try:
                _check(place, page, command)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                if console.cluster_of(page) is not None:
                    error.add_note(place.cluster())
                raise


def _check(place: console.Place, page: Path, command: console.Command) -> None:
    code, printed = place.run(command.line)
    if not command.output.strip():
        assert code == 0, f"{page.relative_to(ROOT)} shows no failure of `{command.line}`:\n{printed}"
        return
    assert code in (0, 1, 2), f"$ {command.line}\n{printed}"
    assert "internal error" not in printed
    assert console.says_the_same(command.output, printed), (
        f"{page.relative_to(ROOT)} shows another output of `{command.line}`; "
        f"`make docs` writes the present one:\n{printed}"
    )


@pytest.mark.parametrize(("page", "command"), MADE, ids=[f"{page.name}: {command.line}" for page, command in MADE])
def test_a_make_target_on_a_page_exists(page: Path, command: console.Command) -> None:  # noqa: ARG001
    target = command.line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", console.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_are_in_blocks_that_are_run(page: Path) -> None:
    assert not re.findall(r"^ {4}(?:\$ |allot |kubectl |python ).*$", _prose(page), re.MULTILINE)
    assert not re.findall(r"^ *```(?:sh|bash|shell)$", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", console.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = _prose(page)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"


def test_the_table_of_features_is_complete_and_has_the_defaults() -> None:
    page = ROOT / "docs/reference/commands/allocate.md"
    rows = re.findall(r"^\| `(\w+)` \| .* \| (on|off) \|$", page.read_text(), re.MULTILINE)
    assert dict(rows) == {name: "on" if name in DEFAULT_FEATURES.names() else "off" for name in ALL_FEATURES.names()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_page_that_names_all_its_options(name: str) -> None:
    page = (ROOT / f"docs/reference/commands/{name}.md").read_text()
    missing = [option for option in _options(_command(name)) if not re.search(rf"(?<![\w-]){option}(?![\w-])", page)]
    assert not missing, f"docs/reference/commands/{name}.md does not name {', '.join(missing)}"


def _command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _options(command: click.Command) -> list[str]:
    """The longest name of every option, those of sub-commands included."""
    own = [max(each.opts, key=len) for each in command.params if isinstance(each, click.Option) and not each.hidden]
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own + [option for each in below for option in _options(each)]


def test_the_site_has_every_page_in_its_navigation() -> None:
    named = re.findall(r"[\w/.-]+\.md", (ROOT / "zensical.toml").read_text().split("\nnav = ")[1])
    own = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert own <= set(named), f"not in zensical.toml: {', '.join(sorted(own - set(named)))}"
    assert len(named) == len(set(named))


def test_an_elision_stands_for_any_lines() -> None:
    assert console.says_the_same("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not console.says_the_same("a\n...\nd\n", "a\nb\nc\n")


def test_a_gap_stands_for_any_text_within_a_line() -> None:
    assert console.says_the_same("pod1 Running … 4s\n", "pod1 Running on t4 4s\n")
    assert not console.says_the_same("pod1 … 4s\n", "pod1\n4s\n")


def test_a_command_may_go_on_in_further_lines() -> None:
    (command,) = console.commands("$ kubectl apply -f - <<EOF\n> a: 1\n> EOF\ncreated\n")
    assert command == ("kubectl apply -f - <<EOF\na: 1\nEOF", "created\n")


def test_files_that_a_page_shows_are_there_for_its_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```yaml\n# pod.yaml\nkind: Pod\n```\n\n```yaml\nkind: Node\n```\n")
    with console.place(page) as place:
        assert place.run("ls *.yaml; cat pod.yaml") == (0, "pod.yaml\n# pod.yaml\nkind: Pod\n")


def test_a_command_after_one_in_the_background_is_tried_until_it_succeeds(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.touch()
    with console.place(page) as place:
        assert place.run("cat kubeconfig")[0] != 0
        assert place.run("sh -c 'sleep 0.3; echo here > kubeconfig' &") == (0, "")
        assert place.run("cat kubeconfig") == (0, "here\n")
