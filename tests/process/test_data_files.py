"""Tables that come with the package: every one fits its type, says nothing twice, and is in the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

import allot
from allot.apiserver.access.default_policy import default_objects
from allot.bench.workloads import workloads
from allot.cli.demos.catalogue import demos
from allot.core.features import ALL_GATES
from allot.devices.catalogue import find_profile, profile_names
from allot.devices.pool_files import price_table
from allot.devices.profiles.amd import amd_tables
from allot.devices.profiles.gpus import gpu_models
from allot.devices.profiles.intel import intel_tables
from allot.devices.profiles.mig import mig_tables
from allot.devices.profiles.tpus import generations
from allot.node.runtimes.stand_ins import programs_of
from allot.process import data_files
from allot.process.data_files import read_data_file

PACKAGE = Path(allot.__file__).parent
REPOSITORY = PACKAGE.parents[1]
TABLES: dict[str, Callable[[], object]] = {
    "apiserver/access/default_policy.yaml": lambda: default_objects(ALL_GATES),
    "bench/workloads.yaml": workloads,
    "cli/demos/catalogue.yaml": demos,
    "cli/demos/tutorials.yaml": demos,
    "devices/profiles/amd.yaml": amd_tables,
    "devices/profiles/gpus.yaml": gpu_models,
    "devices/profiles/intel.yaml": intel_tables,
    "devices/profiles/machines.yaml": lambda: [find_profile(name) for name in profile_names()],
    "devices/profiles/mig.yaml": mig_tables,
    "devices/profiles/prices.yaml": price_table,
    "devices/profiles/tpus.yaml": generations,
    "node/runtimes/stand_ins/catalogue.yaml": lambda: programs_of("nvidia/cuda"),
}


class Row(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    count: int


def twice(node: yaml.Node) -> Iterator[str]:
    """Keys that a mapping has more than once: YAML's loader would take the last in silence."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        yield from (key for index, key in enumerate(keys) if key in keys[:index])
        for _, value in node.value:
            yield from twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from twice(value)


def test_every_table_is_known_here() -> None:
    # Manifests, and definitions that are installed as they are.
    whole = (PACKAGE / "cli/demos/manifests", PACKAGE / "installation/chart")
    found = {path for path in PACKAGE.rglob("*.yaml") if not any(path.is_relative_to(each) for each in whole)}
    assert {path.relative_to(PACKAGE).as_posix() for path in found} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_its_type(name: str) -> None:
    assert TABLES[name]()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_no_key_twice(name: str) -> None:
    node = yaml.compose((PACKAGE / name).read_text(), yaml.CSafeLoader)
    assert list(twice(node)) == []


def test_a_key_that_is_there_twice_is_found() -> None:
    assert list(twice(yaml.compose("a: [{b: 1, c: 2, b: 3}]", yaml.CSafeLoader))) == ["b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: a, count: 1, colour: red}", "unknown field `colour`"),
        ("{name: a}", "missing required field `count`"),
        ("{name: 1.5, count: 1}", "Expected `str`, got `float` - at `$.name`"),
    ],
)
def test_a_file_that_does_not_fit_says_where(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.yaml").write_text(text)
    monkeypatch.setattr(data_files, "files", lambda _package: tmp_path)
    with pytest.raises(msgspec.ValidationError, match=message.replace("$", r"\$")):
        read_data_file("anything", "rows.yaml", Row)


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=100)
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("allot/")}
    listed = subprocess.run(
        ["git", "ls-files", "src/allot"], cwd=REPOSITORY, check=True, capture_output=True, text=True, timeout=60
    )
    assert {f"allot/{name}" for name in TABLES} <= packed
    assert {name.removeprefix("src/") for name in listed.stdout.split()} <= packed
