"""Snapshots from dumps, by somebody who is not a command: notes are values, failures are exceptions of reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.core.model.core_v1 import Node
from allot.reading.errors import NoCluster, Unreadable
from allot.reading.listener import Notes
from allot.reading.snapshots import SnapshotSource, read_snapshot, read_values

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: one, creationTimestamp: 2026-01-02T03:04:05Z}\n"


def dump(folder: Path, text: str) -> SnapshotSource:
    (folder / "dump.yaml").write_text(text)
    return SnapshotSource(files=(str(folder),))


def test_what_a_dump_lacks_and_what_is_passed_over_is_noted(tmp_path: Path) -> None:
    notes = Notes()
    snapshot = read_snapshot(dump(tmp_path, f"{NODE}---\n{NODE.replace('Node', 'ServiceAccount')}"), notes)
    assert [node.metadata.name for node in snapshot.of(Node)] == ["one"]
    assert notes.notes == [
        "not read: 1 ServiceAccount",
        "the dump has no DeviceClass and no ResourceSlice: answers are those for a cluster that has none",
    ]


def test_a_dump_was_made_no_earlier_than_the_newest_time_in_it(tmp_path: Path) -> None:
    assert read_snapshot(dump(tmp_path, NODE), Notes()).taken_at == 1767323045.0


def test_of_an_object_that_is_there_twice_the_last_one_counts(tmp_path: Path) -> None:
    text = f"{NODE}---\n{NODE}spec: {{unschedulable: true}}\n"
    (node,) = read_snapshot(dump(tmp_path, text), Notes()).of(Node)
    assert node.spec.unschedulable


def test_values_are_those_of_the_kinds_that_matter(tmp_path: Path) -> None:
    values = read_values(dump(tmp_path, f"{NODE}---\n{NODE.replace('Node', 'Secret')}"), Notes())
    assert [value["kind"] for value in values] == ["Node"]


def test_of_an_object_that_keeps_others_only_its_metadata_is_a_value(tmp_path: Path) -> None:
    kept = (
        "apiVersion: ray.io/v1\nkind: RayJob\n"
        "metadata: {name: sweep, namespace: lab, deletionTimestamp: 2026-01-02T03:04:05Z, finalizers: [ray.io/done]}\n"
        "spec: {head: {template: {spec: {containers: [{name: main, env: [{name: KEY, value: private}]}]}}}}\n"
        "status: {message: private}\n"
    )
    private = kept.replace("ray.io/v1", "v1").replace("RayJob", "Secret")
    source = dump(tmp_path, f"{NODE}---\n{kept}---\n{private}---\n{kept.replace('finalizers', 'labels')}")
    values = read_values(source, Notes())
    assert [value["kind"] for value in values] == ["Node", "RayJob"]
    assert "private" not in repr(values)
    notes = Notes()
    (found,) = read_snapshot(source, notes).others
    assert (found.api_version, found.kind, found.metadata.name) == ("ray.io/v1", "RayJob", "sweep")
    assert found.metadata.finalizers == ("ray.io/done",)


def test_a_dump_without_anything_of_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="nothing of a cluster's state is in there"):
        read_snapshot(dump(tmp_path, NODE.replace("Node", "Secret")), Notes())


def test_a_kubeconfig_that_is_not_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoCluster) as caught:
        read_snapshot(SnapshotSource(kubeconfig=tmp_path / "none"), Notes())
    assert caught.value.hint is None
