"""The documentation is true: its commands run and print what the pages say."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from allot.core.allocation import ALL_FEATURES, DEFAULT_FEATURES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import console  # noqa: E402

PLAIN = [
    (page, command)
    for page in console.pages()
    for command in console.commands_on(page)
    if command.is_plain and console.cluster_of(page) is None
]
WITH_CLUSTER = [page for page in console.pages() if console.cluster_of(page) is not None]
MADE = [
    (page, command)
    for page in console.pages()
    for command in console.commands_on(page)
    if command.line.startswith("make ")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "command"), PLAIN, ids=[f"{page.relative_to(ROOT)}: {command.line}" for page, command in PLAIN]
)
def test_a_command_on_a_page_prints_what_the_page_says(page: Path, command: console.Command) -> None:
    _check(console.PROJECT, page, command)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CLUSTER, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_do_on_a_cluster_what_the_page_says(page: Path) -> None:
    lines = console.commands_on(page)
    if any("kubectl " in command.line for command in lines) and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with console.cluster(console.cluster_of(page) or []) as place:
        for command in lines:
            if not command.is_set_up:
                _check(place, page, command)


def _check(place: console.Place, page: Path, command: console.Command) -> None:
    code, printed = place.run(command.line)
    assert code in (0, 1, 2), f"$ {command.line}\n{printed}"
    assert "internal error" not in printed
    if command.output.strip():
        assert console.says_the_same(command.output, printed), (
            f"{page.relative_to(ROOT)} shows another output of `{command.line}`; "
            f"`make docs` writes the present one:\n{printed}"
        )


@pytest.mark.parametrize(("page", "command"), MADE, ids=[f"{page.name}: {command.line}" for page, command in MADE])
def test_a_make_target_on_a_page_exists(page: Path, command: console.Command) -> None:  # noqa: ARG001
    target = command.line.split()[1]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", console.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"


def test_the_table_of_features_is_complete_and_has_the_defaults() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (on|off) \|$", (ROOT / "docs/reference/cli.md").read_text(), re.MULTILINE)
    assert dict(rows) == {name: "on" if name in DEFAULT_FEATURES.names() else "off" for name in ALL_FEATURES.names()}


def test_an_elision_stands_for_any_lines() -> None:
    assert console.says_the_same("a\n...\nd\n", "a\nb\nc\nd\n")
    assert not console.says_the_same("a\n...\nd\n", "a\nb\nc\n")


def test_a_gap_stands_for_any_text_within_a_line() -> None:
    assert console.says_the_same("pod1 Running … 4s\n", "pod1 Running on t4 4s\n")
    assert not console.says_the_same("pod1 … 4s\n", "pod1\n4s\n")


def test_a_command_may_go_on_in_further_lines() -> None:
    (command,) = console.commands("$ kubectl apply -f - <<EOF\n> a: 1\n> EOF\ncreated\n")
    assert command == ("kubectl apply -f - <<EOF\na: 1\nEOF", "created\n")
