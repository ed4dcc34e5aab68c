"""How allot is installed: nothing from an index by name, everything else by exact version and hash."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

import allot
from allot.driver.skeleton import write_skeleton

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("src/allot/requirements.txt", "requirements/build.txt", "requirements/dev.txt")
WHEEL = f"allot_dra-{allot.__version__}-py3-none-any.whl"
# `pip install`, `pipx run`, `uv tool install`, `uvx`: up to where the command ends, in a script as in prose.
_COMMAND = re.compile(
    r"""(?:\bpip3?\b(?:\ --[\w-]+)*\ (?:install|download|wheel)|\$\(PIP\)\ (?:install|wheel)
    |\bpipx\ (?:install|run)|\buv\ (?:tool\ (?:install|run)|add)|\buvx)\b(?P<arguments>[^`"|;&)\n]*)""",
    re.VERBOSE,
)
_WITH_VALUE = {
    "-r",
    "--requirement",
    "-c",
    "--constraint",
    "--wheel-dir",
    "--index-url",
    "--extra-index-url",
    "--target",
}


def problems(text: str) -> list[str]:
    """Commands that would install something by its name alone, or a list without hashes."""
    found = []
    for match in _COMMAND.finditer(text.replace("\\\n", " ")):
        words = shlex.split(match["arguments"], comments=True)
        options = [word.partition("=")[0] for word in words if word.startswith("-")]
        targets, lists = [], 0
        rest = iter(words)
        for word in rest:
            if word in _WITH_VALUE:
                value = next(rest, "")
                lists += word in ("-r", "--requirement")
                assert value, match[0]
            elif not word.startswith("-"):
                targets.append(word)
        if lists and "--require-hashes" not in options:
            found.append(f"without hashes: {match[0]}")
        found += [f"{target!r}: {match[0]}" for target in targets if not _is_ours(target)]
    return found


def _is_ours(target: str) -> bool:
    """A path of the repository, of its wheel, or what a lock file of make stands for."""
    return target == "." or target.endswith((WHEEL, "/@WHEEL@")) or target == "$(addprefix"


@pytest.mark.parametrize(
    "command",
    [
        "RUN pip install --no-cache-dir allot",
        "`pip install allot`",
        "`pip install allot-dra`",
        "pip3 install --upgrade 'requests>=2'",
        "python -m pip --quiet install requests==2.0",
        "pip install -r requirements.txt",
        "pip install --no-deps \\\n  requests",
        "pipx run allot",
        "uv tool install allot-dra",
        "$(PIP) install build",
    ],
)
def test_what_installs_by_name_or_without_hashes_is_found(command: str) -> None:
    assert problems(command)


@pytest.mark.parametrize(
    "command",
    [
        "`pip install` brings it",
        "pip install --require-hashes -r requirements.txt && pip install --no-deps /packages/" + WHEEL,
        "$(PIP) install --no-deps --no-build-isolation --editable .",
    ],
)
def test_what_installs_from_here_or_by_hash_is_fine(command: str) -> None:
    assert problems(command) == []


def test_no_file_of_ours_installs_by_name_or_without_hashes() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs the repository: what is tracked is what is looked at")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        # The examples above are meant to be wrong.
        if path == Path(__file__) or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {problem}" for problem in problems(text)]
    assert found == []


def test_the_image_of_a_new_driver_has_allot_from_its_wheel_and_the_rest_by_hash(tmp_path: Path) -> None:
    written = write_skeleton("dice.example.com", tmp_path)
    assert [f"{path.name}: {problem}" for path in written for problem in problems(path.read_text())] == []
    dockerfile = (tmp_path / "Dockerfile").read_text()
    assert f"--no-index --no-deps /packages/{WHEEL}" in dockerfile
    assert (tmp_path / "requirements.txt").read_text() == (ROOT / LOCKS[0]).read_text()


def pinned(lock: str) -> dict[str, set[str]]:
    """Names in a lock file, each with its version, or one for each kind of machine; each has a hash."""
    found: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text().strip()):
        head, *hashes = entry.split(" \\\n")
        matched = re.fullmatch(r"([\w.-]+)==([\w.+!]+)( ; .+)?", head)
        assert matched, head
        assert hashes and all(re.fullmatch(r"\s+--hash=sha256:[0-9a-f]{64}", each) for each in hashes), head
        assert matched[1] not in found or matched[3], f"{matched[1]} is pinned twice"
        found.setdefault(matched[1], set()).add(matched[2])
    return found


def test_lock_files_have_every_dependency_with_hashes_and_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = (
        project["project"]["dependencies"],
        project["dependency-groups"]["build"],
        project["project"]["optional-dependencies"]["dev"],
    )
    every = pinned(LOCKS[2])
    for lock, requirements in zip(LOCKS, wanted, strict=True):
        versions = pinned(lock)
        for requirement in requirements:
            matched = re.match(r"[\w.-]+", requirement)
            assert matched and matched[0].lower().replace("_", "-") in versions, f"{lock}: {requirement}; run make lock"
        assert {name: every.get(name) for name in versions} == versions


def test_the_distribution_is_not_called_like_a_strangers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "allot-dra"
    assert project["version"] == allot.__version__
    assert project["scripts"]["allot"] == "allot.cli.main:main"
