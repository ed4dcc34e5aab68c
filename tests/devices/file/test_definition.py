"""Device files: what is understood, and which line is named when something is not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from allot.cli.up.local_node import LocalNode, LocalOptions
from allot.cli.up.node_sets import parse_specs, with_device_files
from allot.core.lifecycle.slice_publishing import check_pools
from allot.devices.file.definition import DeviceFile, parse_device_file, read_device_file
from allot.devices.file.expansion import expand
from allot.devices.node_files import NodeFile, parse_node_file
from allot.devices.pool_files import parse_pools, template_of
from allot.reading.errors import Unreadable

EXAMPLES = Path(__file__).parents[3] / "examples" / "devices"

FILE = """\
driver: fpga.example.com
counters:
- name: card-{index}
  count: 2
  counters: {memory: 16Gi}
devices:
- name: fpga-{index}
  count: 2
  attributes: {model: U280, slot: {int: "{index}"}}
  capacity: {memory: 16Gi}
  consumes: {"card-{index}": {memory: 16Gi}}
  edits:
    deviceNodes: [{path: "/dev/fpga{index}"}]
configuration:
- apiVersion: fpga.example.com/v1
  kind: FpgaConfig
  schema: {properties: {bitstream: {type: string}}}
  env: {FPGA_BITSTREAM: bitstream}
deviceClasses:
- name: fpga.example.com
  selectors: ['device.attributes["fpga.example.com"].slot >= 0']
"""


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_what_the_api_server_takes(path: Path) -> None:
    nodes = with_device_files(parse_specs(("n2-standard-4=2",)), (path,))
    ((_, pool),) = nodes.simulated[0].resolved()[1].pools("n2-standard-4-1")
    assert len(pool.devices) >= 6
    assert check_pools(read_device_file(path).driver, (pool,)) == ()


def test_entries_are_numbered_and_typed() -> None:
    found = parse_device_file(FILE.encode(), "f.yaml")
    first, second = (entry.device() for entry in found.entries("n"))
    assert (first.name, second.name) == ("fpga-0", "fpga-1")
    assert second.attributes["slot"].int_ == 1
    assert second.consumes_counters[0].counter_set == "card-1"
    assert [each.name for each in found.counter_sets("n")] == ["card-0", "card-1"]


def test_numbers_are_worked_out_from_left_to_right() -> None:
    assert expand("{index//2*16+5:02x}.{index%2} on {node}", 5, "n1") == "25.1 on n1"
    assert expand({"a{index}": ["{index-1}", 7, '{"json": 1}']}, 3, "") == {"a3": ["2", 7, '{"json": 1}']}


@pytest.mark.parametrize(
    ("before", "after", "line", "text", "hint"),
    [
        ("driver: fpga", "driver: FPGA", 1, "driver 'FPGA.example.com'", "a DNS name of yours"),
        ("  attributes:", "  atributes:", 9, "unknown field 'atributes'", 'did you mean "attributes"?'),
        ("path: ", "pth: ", 13, "unknown field 'pth'", 'did you mean "path"?'),
        ("count: 2\n  attr", "count: 0\n  attr", 8, "count: expected `int` >= 1", None),
        ("name: fpga-{index}", "name: fpga", 7, "device 'fpga' named twice", "use {index} in the name to distinguish them"),
        ("{index}\n  count: 2\n  attr", "{idx}\n  count: 2\n  attr", 7, "{idx}: expected {node}, {index}", None),
        ('{"card-{index}"', '{"card{index}"', 11, "counter set 'card0' does not exist", 'did you mean "card-0"?'),
        ("{memory: 16Gi}}", "{memry: 16Gi}}", 11, "has no counter 'memry'", 'did you mean "memory"?'),
        ("  capacity: {memory: 16Gi}", "  capacity: {memory: lots}", 7, "device 'fpga-{index}': quantities", None),
        ("model: U280", f"model: {'U' * 65}", 7, "attributes[model].string: Too long", None),
        ('"/dev/fpga{index}"', '"dev/fpga{index}"', 12, "device node 'dev/fpga0': expected an absolute path", None),
        ("{type: string}}}", "{type: text}}}", 17, 'Unsupported value: "text"', None),
        ("BITSTREAM: bitstream", "BITSTREAM: bitstrem", 18, "FpgaConfig has no field 'bitstrem'", "bitstream"),
        ("].slot >= 0", "].slot >=", 20, "device class 'fpga.example.com': spec.selectors[1]", None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(before: str, after: str, line: int, text: str, hint: str | None) -> None:
    assert FILE.count(before) == 1
    with pytest.raises(Unreadable) as caught:
        parse_device_file(FILE.replace(before, after).encode(), "f.yaml")
    assert caught.value.message.startswith(f"f.yaml: line {line}: ")
    assert text in caught.value.message
    assert (hint or "") in (caught.value.hint or "")


def test_a_selector_names_the_nodes_that_have_the_devices(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    selector = "nodeSelector: {node.kubernetes.io/instance-type: t4}\n"
    file.write_text(FILE + selector)
    nodes = with_device_files(parse_specs(("t4", "l4")), (file,))
    assert [each.resolved()[1].names for each in nodes.simulated] == [
        ("gpu.nvidia.com", "fpga.example.com"),
        ("gpu.nvidia.com",),
    ]
    # The kinds name pods and containers, which have no dots.
    assert nodes.drivers == {"t4": ("gpu", "fpga-example-com"), "l4": ("gpu",)}
    # What is kept for the next start, and what the nodes' process is told, is the same.
    again = parse_node_file(msgspec.json.encode(NodeFile(nodes.simulated)), "kept").nodes
    assert again == nodes.simulated
    # A file that is given again takes the place of what was.
    assert with_device_files(nodes, (file,)) == nodes
    with pytest.raises(Unreadable, match="no node has these labels"):
        with_device_files(parse_specs(("l4",)), (file,))
    with pytest.raises(Unreadable, match="is also in an earlier --devices"):
        with_device_files(nodes, (file, file))


def test_a_driver_that_a_machine_has_is_not_described_again(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("driver: gpu.nvidia.com\ndevices: [{name: gpu-9}]\n")
    with pytest.raises(Unreadable, match=r"node t4: driver 'gpu\.nvidia\.com' already exists"):
        with_device_files(parse_specs(("t4",)), (file,))
    inside = b"nodes:\n- profile: t4\n  devices:\n  - driver: a.example.com\n    devices: [{name: A}]\n"
    with pytest.raises(Unreadable, match=r"nodes\.yaml: line 5: .*device 'A'"):
        parse_node_file(inside, "nodes.yaml")


def test_this_machine_can_have_them(tmp_path: Path) -> None:
    path = tmp_path / "fpga.yaml"
    path.write_text(FILE)
    nodes = with_device_files(parse_specs(("local",)), (path,))
    assert msgspec.json.decode(msgspec.json.encode(nodes), type=type(nodes)) == nodes
    local = LocalNode(LocalOptions(), tmp_path / "n", tmp_path / "kubeconfig", "default", nodes.local_devices)
    assert "fpga.example.com" in [made.metadata.name for made in local.device_classes]
    command = local.drivers()["fpga-example-com"]
    assert command[1:3] == ["-m", "allot.devices.file"]
    assert read_device_file(Path(command[3])) == read_device_file(path)
    done = subprocess.run([*command[:4], "--describe"], capture_output=True, text=True, check=True)
    assert '"name":"fpga.example.com"' in done.stdout
    path.write_text(f"nodeSelector: {{rack: r1}}\n{FILE}")
    with pytest.raises(Unreadable, match="no node has these labels"):
        with_device_files(parse_specs(("local",)), (path,))


def test_nodes_of_pools_have_them_too(tmp_path: Path) -> None:
    path = tmp_path / "fpga.yaml"
    path.write_text(
        "driver: fpga.example.com\nnodeSelector: {kind: fpga}\ndevices: [{name: 'fpga-{index}', count: 2}]\n"
    )
    pools = tmp_path / "pools.yaml"
    pools.write_text(
        "pools:\n- {name: a, machine: n2-standard-4, labels: {kind: fpga}}\n- {name: b, machine: n2-standard-4}\n"
    )
    nodes = msgspec.structs.replace(parse_specs(("none",)), pools=parse_pools([str(pools)], "--pool"))
    found = with_device_files(nodes, (path,)).pools
    assert [len(pool.devices) for pool in found.pools] == [1, 0]
    template, classes = template_of(found.pools[0])
    assert [device.name for each in template.slices for device in each.spec.devices or ()] == ["fpga-0", "fpga-1"]
    assert "fpga.example.com" in [each.metadata.name for each in classes]
    # As the agent reads what `allot up` wrote.
    again = tmp_path / "again.json"
    again.write_bytes(msgspec.json.encode(found))
    assert parse_pools([str(again)], "--pool") == found
    pools.write_text(
        "pools:\n- name: a\n  machine: t4\n  devices:\n  - driver: fpga.example.com\n    devices: [{nam: x}]\n"
    )
    with pytest.raises(Unreadable, match=r"pools\.yaml: line 6: .*nam"):
        parse_pools([str(pools)], "--pool")


def test_a_file_without_classes_brings_one_for_all_its_devices() -> None:
    (found,) = DeviceFile(driver="a.example.com", devices=()).classes
    assert found.metadata.name == "a.example.com"
    assert [each.cel.expression for each in found.spec.selectors if each.cel] == ['device.driver == "a.example.com"']
