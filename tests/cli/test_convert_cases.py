"""Manifests of every generation with what `allot convert` makes of them: the text it writes and the messages it prints.

`NAME.in.yaml` is converted; `NAME.out.yaml` is the result (absent when it is refused) and `NAME.messages.txt` what is said.
A name that ends in `--OPTION` is converted with it. `python tests/cli/test_convert_cases.py` writes the results of today.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

# Pytest finds the other test modules by itself; a run of this file as a script does not.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from allot.cli.linting.server_answers import ServerAnswers
from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.linter import lint
from allot.core.features import ALL_GATES
from allot.reading.sources import read_source
from cli.command import Result, allot

CASES = Path(__file__).parent / "convert_cases"
NAMES = sorted(file.name.removesuffix(".in.yaml") for file in CASES.glob("*.in.yaml"))
SERVER = ServerAnswers(ALL_GATES)


def converted(name: str, *options: str) -> Result:
    option = re.findall("--[a-z-]+$", name)
    return allot("convert", str(CASES / f"{name}.in.yaml"), *option, *options)


def messages(result: Result) -> str:
    return result.stderr.replace(f"{CASES}/", "")


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_is_converted_with_these_words(name: str) -> None:
    result = converted(name)
    assert messages(result) == (CASES / f"{name}.messages.txt").read_text()
    expected = CASES / f"{name}.out.yaml"
    assert (result.code, result.stdout) == ((0, expected.read_text()) if expected.exists() else (1, ""))


@pytest.mark.parametrize("name", [name for name in NAMES if (CASES / f"{name}.out.yaml").exists()])
def test_a_result_is_valid_and_stays_as_it_is(name: str) -> None:
    path = CASES / f"{name}.out.yaml"
    option = re.findall("--[a-z-]+$", name)
    again = allot("convert", str(path), *option)
    assert again.stdout == path.read_text()
    assert " -> " not in again.stderr
    found = lint([read_source(path.read_bytes(), "out.yaml")], Knowledge(), SERVER)
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


def refresh() -> None:
    for name in NAMES:
        result = converted(name)
        (CASES / f"{name}.messages.txt").write_text(messages(result))
        out = CASES / f"{name}.out.yaml"
        if result.code == 0:
            out.write_text(result.stdout)
        else:
            out.unlink(missing_ok=True)


if __name__ == "__main__":
    refresh()
