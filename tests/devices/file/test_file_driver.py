"""The driver of a device file under a real API server and the kubelet's protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.file.definition import read_device_file
from allot.devices.file.driver import driver_of
from allot.driver import Health
from allot.driver.conformance.kubelet import ClaimRef
from driver.cluster import cluster, make_claim, started

EXAMPLES = Path(__file__).parents[3] / "examples" / "devices"


def parameters(**fields: Any) -> dict[str, Any]:
    value = {"apiVersion": "fpga.example.com/v1", "kind": "FpgaConfig", **fields}
    return {"source": "FromClaim", "opaque": {"driver": "fpga.example.com", "parameters": value}}


def edits_of(folder: Path, claim: ClaimRef) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (folder / "cdi").glob("*.json") if claim.uid in path.name]
    return [device["containerEdits"] for spec in found for device in spec["devices"]]


@pytest.mark.slow
async def test_containers_get_what_the_file_and_the_parameters_say(tmp_path: Path) -> None:
    state = tmp_path / "s"
    driver = driver_of(read_device_file(EXAMPLES / "fpga.yaml"), state)
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        client = plane.client()
        await plugin.publisher.synced.wait()
        slices = (await client.typed(ResourceSlice).list()).items
        assert sum(len(each.spec.devices or ()) for each in slices) == 12

        names = ["fpga-0", "fpga-1-region-1"]
        claim = await make_claim(client, driver.name, names, configs=[parameters(clockMHz=300)])
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        whole, region = edits_of(tmp_path, claim)
        expected = {"FPGA_DEVICES=/dev/fpga0,/dev/fpga1.1", "FPGA_BITSTREAM=pass-through", "FPGA_CLOCK_MHZ=300"}
        assert set(whole["env"]) == set(region["env"]) == expected
        assert [mount["containerPath"] for mount in (*whole["mounts"], *region["mounts"])] == [
            "/dev/fpga0",
            "/dev/fpga1.1",
        ]
        assert Path(whole["mounts"][0]["hostPath"]).is_file()
        assert (await kubelet.unprepare([claim]))[claim.uid] == ""
        assert not list((state / "claims").iterdir())

        for name, fields, text in (
            ("fpga-2", {"clockMHz": 900}, "clockMHz in body should be less than or equal to 500"),
            ("fpga-3", {"bitstrem": "x"}, 'strict decoding error: unknown field "bitstrem"'),
        ):
            wrong = await make_claim(client, driver.name, [name], configs=[parameters(**fields)])
            error = (await kubelet.prepare([wrong]))[wrong.uid].error
            assert text in error


class _Node:
    name = "n"


def test_a_real_device_is_there_as_long_as_its_device_file_is(tmp_path: Path) -> None:
    text = f'driver: a.example.com\ndevices:\n- {{name: "a-{{index}}", count: 2, edits: {{deviceNodes: [{{path: "{tmp_path}/a{{index}}"}}]}}}}\n'
    file = tmp_path / "a.yaml"
    file.write_text(text)
    (tmp_path / "a1").touch()
    driver = driver_of(read_device_file(file))
    driver.node = _Node()  # type: ignore[assignment]
    assert [device.name for device in driver.devices().devices] == ["a-1"]
    assert [(each.name, each.health) for each in driver.health()] == [
        ("a-0", Health.UNHEALTHY),
        ("a-1", Health.HEALTHY),
    ]
