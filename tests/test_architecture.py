"""ARCHITECTURE.md is true: what it names is there, and every word of its own is explained."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
CODE = re.compile(r"`([^`\s]+)`")
# A path, of a folder or a file; dotted names and options are no paths.
PATH = re.compile(r"[\w./-]+/|(?:[\w-]+/)+[\w.-]+|[\w/-]+\.(?:py|yaml|toml|md)")
LINE_MAX = 150


def section(title: str) -> str:
    return TEXT[TEXT.index(f"## {title}") :].partition("\n## ")[0]


def named_paths() -> list[str]:
    return sorted({name.strip("/") for name in CODE.findall(TEXT) if PATH.fullmatch(name)})


@pytest.fixture(scope="module")
def paths() -> list[str]:
    """Every file and folder; a name may leave out the folders that the text around it is about."""
    below = (path for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*"))
    return [f"/{path.relative_to(ROOT)}" for path in (*below, *ROOT.iterdir())]


@pytest.mark.parametrize("name", named_paths())
def test_what_is_named_is_there(name: str, paths: list[str]) -> None:
    assert any(path.endswith(f"/{name}") for path in paths), f"ARCHITECTURE.md names {name}, which is not in the tree"


def test_every_layer_is_drawn() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {
        name.strip() for contract in contracts for layer in contract.get("layers", ()) for name in layer.split("|")
    }
    drawn = section("2. Bird's-eye view")
    assert {name for name in layers if name != "__main__" and not re.search(rf"\b{name}\b", drawn)} == set()


def test_every_word_in_italics_is_in_the_glossary() -> None:
    glossary = {row.split("|")[1].strip() for row in section("10. Glossary").splitlines() if row.startswith("| ")}
    prose = re.sub(r"```.*?```|`[^`]*`|\*\*.*?\*\*", "", TEXT[: TEXT.index("## 10. Glossary")], flags=re.DOTALL)
    words = {word.lower().rstrip(":") for word in re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", prose)} - {"italics"}
    assert words, "no words in italics were found"
    assert {word for word in words if word not in glossary and word.removesuffix("s") not in glossary} == set()


def test_lines_are_short() -> None:
    assert [line for line in TEXT.splitlines() if len(line) > LINE_MAX and not line.startswith("|")] == []
