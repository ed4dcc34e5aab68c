"""What CONVENTIONS.md says of the code, where code can be asked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import allot

PACKAGE = Path(allot.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_pb2.py"))
# Where every exception ends: a bug becomes a message; background tasks and the code of others are answered for.
CATCH_ALL = {"cli/main.py", "process/supervise.py"}
# The guard of the API server, which has objects as they are stored.
PLAIN_OBJECTS = {"core/allocation/holdings.py"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# Catches all by its name, without one, or by names that follow on other lines.
_PERHAPS = re.compile(r"^ *except(.*\b(Base)?Exception\b| *:|.*\($)", re.MULTILINE)


def handlers(path: Path) -> Iterator[ast.ExceptHandler]:
    text = path.read_text()
    # Most have none that could be meant, and need not be read any further.
    tree = ast.parse(text) if _PERHAPS.search(text) else ast.Module([], [])
    return (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler))


def caught(handler: ast.ExceptHandler) -> set[str]:
    if handler.type is None:
        return {"BaseException"}
    return {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}


def test_no_module_has_a_name_that_says_nothing() -> None:
    names = {part for path in MODULES for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert names.isdisjoint({"utils", "helpers", "common", "manager", "base"})


def catches_all(path: Path) -> Iterator[ast.ExceptHandler]:
    return (handler for handler in handlers(path) if caught(handler) & {"Exception", "BaseException"})


def test_every_exception_ends_in_two_modules_only() -> None:
    """Elsewhere who catches them all undoes something and raises again."""
    found = {
        name_of(path)
        for path in MODULES
        for handler in catches_all(path)
        if not isinstance(handler.body[-1], ast.Raise)
    }
    assert found == CATCH_ALL


def test_allocation_and_scheduling_take_structs() -> None:
    plain = re.compile(r"(dict|Mapping)\[str, Any\]")
    found = {
        name_of(path)
        for folder in ("core/allocation", "core/scheduling")
        for path in (PACKAGE / folder).rglob("*.py")
        if plain.search(path.read_text())
    }
    assert found == PLAIN_OBJECTS


def test_no_page_has_marks_of_a_merge() -> None:
    root = PACKAGE.parents[1]
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    assert pages
    assert not [path for path in pages if re.search(r"^(<{7}|>{7}) ", path.read_text(), re.MULTILINE)]
