"""Files of simulated nodes: what is understood, and which line is named when something is not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.node_files import NodeSet, default_name, parse_node_file, read_node_file
from allot.devices.node_templates import objects_of
from allot.reading.errors import Unreadable

FILE = b"""\
nodes:
  - {name: t4, profile: Standard_NC4as_T4_v3}
  - profile: a3-ultragpu-8g
    count: 2
    labels: {zone: a}
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
    drivers:
      gpu: {featureGates: {DynamicMIG: true}}
      cpu: {groupBy: socket}
      nic: false
  - profile: ct6e-standard-4t
"""


def test_a_file_says_names_and_drivers_of_all_nodes() -> None:
    sets = parse_node_file(FILE, "nodes.yaml").nodes
    assert [each.names for each in sets] == [
        ("t4",),
        ("a3-ultragpu-8g-0", "a3-ultragpu-8g-1"),
        ("ct6e-standard-4t",),
    ]
    assert [each.resolved()[1].names for each in sets] == [
        ("gpu.nvidia.com",),
        ("gpu.nvidia.com", "dra.cpu"),
        ("tpu.google.com",),
    ]
    assert sets[1].resolved()[0].cpus == 224


def test_a_file_that_was_written_from_node_sets_is_read_as_the_same(tmp_path: Path) -> None:
    file = parse_node_file(FILE, "nodes.yaml")
    path = tmp_path / "nodes.json"
    path.write_bytes(msgspec.json.encode(file))
    assert read_node_file(path) == file
    assert msgspec.json.encode(NodeSet(profile="t4")) == b'{"profile":"t4"}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes:\n- profile: t4\n- profile: h1000x8\n", "line 3: profile 'h1000x8': unknown machine"),
        ("nodes:\n- profile: t4\n  conut: 3\n", "line 3: unknown field 'conut'"),
        ("nodes:\n- profile: t4\n  count: 0\n", "line 3: count: expected `int` >= 1"),
        ("nodes:\n- profile: t4\n  name: T4\n", "line 3: node name 'T4': expected lower-case letters"),
        ("nodes:\n- profile: t4\n- profile: t4\n", "line 3: two nodes are called 't4'"),
        ("nodes:\n- profile: t4\n  labels:\n    a b: c\n", "line 4: label 'a b': 'c': name part must consist of"),
        ("nodes:\n- profile: t4\n  labels: {a: b c}\n", "line 3: label 'a': 'b c': a valid label must be"),
        ("nodes:\n- profile: t4\n  taints: [{key: a b, effect: NoExecute}]\n", "line 3: taint 'a b': '': name part"),
        ("nodes:\n- count: 2\n", "line 2: object missing required field `profile`"),
        ("nodes:\n- 3\n", "line 2: expected `object`, got `int`"),
        (
            "nodes:\n- profile: t4\n  taints:\n  - key: a\n    effect: Never\n",
            "line 5: taints.0.effect: invalid enum value",
        ),
        ("nodes:\n- profile: t4\n  drivers:\n    tpu: {}\n", "line 4: profile t4 has no TPU chips"),
        ("nodes:\n- profile: v6ex4\n  drivers: {cpu: {}}\n", "line 3: profile v6ex4 has no processors that are known"),
        ("nodes:\n- profile: t4\n  drivers:\n    gpu:\n      gates: 1\n", "line 5: unknown field 'gates'"),
        (
            "nodes:\n- profile: t4\n  drivers:\n    gpu:\n      featureGates: {NoGate: true}\n",
            "line 5: feature gate 'NoGate': expected one of",
        ),
        (
            "nodes:\n- profile: h100x2\n  drivers:\n    gpu:\n      migLayout: all=9g.9gb\n",
            "line 5: MIG layout of GPU 0: profile '9g.9gb'",
        ),
        ("nodes:\n- profile: t4\n  drivers:\n    cpu: {reservedCpus: x}\n", "line 4: CPU list 'x'"),
        ("nodes:\n- profile: v6ex4\n  drivers:\n    tpu: {topology: x}\n", "line 4: topology 'x'"),
        ("node: []\n", "expected a list `nodes`"),
        ("nodes: []\nother: 1\n", "line 2: unknown field 'other', expected nodes"),
        ("nodes: []\n---\nnodes: []\n", "2 documents: expected one"),
        (
            "nodes:\n- {profile: t4, count: 15000}\n- {profile: l4, count: 15000}\n",
            "30000 nodes, expected at most 20000",
        ),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_node_file(text.encode(), "nodes.yaml")
    assert f"nodes.yaml: {said}" in caught.value.message


def test_a_profile_that_is_not_there_comes_with_those_that_are_near() -> None:
    with pytest.raises(Unreadable) as caught:
        parse_node_file(b"nodes: [{profile: standard_nc4as_t4_v4}]", "nodes.yaml")
    assert caught.value.hint is not None and "Standard_NC4as_T4_v3" in caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no such file"):
        read_node_file(tmp_path / "none.yaml")


def test_names_of_nodes_are_made_of_the_profile() -> None:
    assert [default_name(each) for each in ("Standard_NC4as_T4_v3", "p4d.24xlarge", "h100x8")] == [
        "standard-nc4as-t4-v3",
        "p4d.24xlarge",
        "h100x8",
    ]


def test_trays_are_numbered_through_eighteen_to_a_rack() -> None:
    (found,) = parse_node_file(b"nodes: [{profile: gb200-nvl72, count: 20}]", "file").nodes
    nodes = [each for each in objects_of(found) if isinstance(each, Node)]
    cliques = [each.metadata.labels["nvidia.com/gpu.clique"] for each in nodes]
    assert [cliques.count(each) for each in dict.fromkeys(cliques)] == [18, 2]
    slices = [each for each in objects_of(found) if isinstance(each, ResourceSlice)]
    devices = {
        device.name
        for each in slices
        if each.spec.driver == "compute-domain.nvidia.com"
        for device in each.spec.devices or ()
    }
    assert devices == {"channel-0", "daemon-0"}


def test_a_rack_can_be_named_and_other_machines_have_none() -> None:
    text = b"nodes: [{profile: gb200-nvl72, labels: {nvidia.com/gpu.clique: a.1}}, {profile: h100x8}]"
    labels = [
        each.metadata.labels.get("nvidia.com/gpu.clique")
        for one in parse_node_file(text, "file").nodes
        for each in objects_of(one)
        if isinstance(each, Node)
    ]
    assert labels == ["a.1", None]
