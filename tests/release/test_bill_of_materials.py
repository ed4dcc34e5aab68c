"""The bill of materials has all that is installed, with hashes and licences; a second build of the chart is the same."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from release.bill_of_materials import Locked, bill_of_materials, licence_of, read_lock
from release.dist import CHART, LOCK, project_version, write_chart, write_checksums

import allot


def test_every_locked_package_is_on_it_with_its_hashes() -> None:
    packages = read_lock(LOCK)
    bill = bill_of_materials("1.2", packages)
    found = {each["name"]: each for each in bill["components"]}
    assert {each.name for each in packages} == set(found)
    assert found["msgspec"]["purl"] == f"pkg:pypi/msgspec@{found['msgspec']['version']}"
    assert all(len(each["content"]) == 64 for component in found.values() for each in component["hashes"])
    assert bill["metadata"]["component"]["version"] == "1.2"
    assert bill_of_materials("1.2", packages)["serialNumber"] == bill["serialNumber"]


def test_licences_of_what_is_installed_are_known() -> None:
    names = {each.name for each in read_lock(LOCK) if not each.condition}
    assert {name for name in names if not licence_of(name)} == set()
    assert licence_of("nothing-of-that-name") == ""


def test_what_is_no_lock_file_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("msgspec>=1\n")
    with pytest.raises(ValueError, match="expected NAME==VERSION with hashes"):
        read_lock(lock)
    lock.write_text("a==1 ; python_version < '3.12' \\\n    --hash=sha256:00\n")
    assert read_lock(lock) == [Locked("a", "1", ("00",), "python_version < '3.12'")]


def test_the_chart_is_packed_whole_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.tgz", "two.tgz"):
        write_chart(tmp_path / name, 1_700_000_000)
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as packed:
        names = {each.removeprefix("allot/") for each in packed.getnames()}
    files = (each for each in CHART.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    assert names == {each.relative_to(CHART).as_posix() for each in files}
    write_checksums(tmp_path)
    assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 2


def test_the_release_has_one_version() -> None:
    assert project_version() == allot.__version__
