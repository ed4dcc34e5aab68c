"""The documentation is true: its commands run and print what the pages say."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from allot.core.allocation import ALL_FEATURES, DEFAULT_FEATURES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

import console  # noqa: E402

RUN = [(page, command) for page in console.pages() for command in console.commands_on(page) if command.is_run]
MADE = [
    (page, command)
    for page in console.pages()
    for command in console.commands_on(page)
    if command.line.startswith("make ")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "command"), RUN, ids=[f"{page.relative_to(ROOT)}: {command.line}" for page, command in RUN]
)
def test_a_command_on_a_page_prints_what_the_page_says(page: Path, command: console.Command) -> None:
    code, printed = console.run(command)
    assert code in (0, 1, 2), printed
    assert "internal error" not in printed
    if command.output.strip():
        assert console.says_the_same(command.output, printed), (
            f"{page.relative_to(ROOT)} shows another output; `make docs` writes the present one:\n{printed}"
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
