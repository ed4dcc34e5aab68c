"""What a container of a real containerd sees of simulated GPUs: busybox is all that its image has."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.devices.gpu.hardware import MpsSettings
from allot.driver import Edits, Mount
from allot.driver.cdi_files import CdiFiles
from containerd_server import ContainerdServer
from devices.gpu.world import simulated
from node.runtimes.test_cri import LASTS, RunningPod, pod, runtime, server

pytestmark = pytest.mark.slow
__all__ = ["pod", "runtime", "server"]


async def test_the_programs_run_in_a_container(server: ContainerdServer, pod: RunningPod, tmp_path: Path) -> None:
    hardware = simulated(tmp_path / "state", "h100x2", {1: ("1g.10gb",)})
    hardware.open()
    whole, cut = hardware.gpus()
    (instance,) = cut.mig_instances
    settings = MpsSettings(id="x", uuids=(whole.uuid,), pinned_memory_limits_mib={whole.uuid: 10240})
    pipe = Mount(host_path=str(hardware.start_mps(settings).pipe), container_path="/tmp/nvidia-mps", options=("rbind",))
    mps = Edits(env={"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}, mounts=(pipe,))
    files = CdiFiles(server.cdi, "k8s.gpu.nvidia.com/claim")
    common = files.write_common(hardware.common_edits())
    edits = {
        "a": hardware.gpu_edits(whole, "gpu-0"),
        "b": hardware.instance_edits(cut, instance, "gpu-1-mig"),
        "c": mps,
    }
    files.write_claim("test", files.spec_of(edits))
    names = (common, *(f"k8s.gpu.nvidia.com/claim={name}" for name in edits))
    # The image of the tests has less on its PATH than images mostly have, and only some names of busybox.
    id_ = await pod.start(command=LASTS, cdi_devices=names, environment={"PATH": "/usr/local/bin:/bin"})

    async def run(script: str) -> tuple[int, str]:
        code, output = await pod.runtime.exec_sync(id_, ("sh", "-c", script), 20)
        return code, output.decode()

    assert (await run("/bin/busybox --install -s /bin"))[0] == 0
    assert await run("nvidia-smi -L") == (
        0,
        f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {whole.uuid})\n"
        f"GPU 1: NVIDIA H100 80GB HBM3 (UUID: {cut.uuid})\n"
        f"  MIG 1g.10gb     Device  0: (UUID: {instance.uuid})\n",
    )
    query = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
    assert await run(f"gpu-memory 9Gi --hold 20 >/dev/null 2>&1 & sleep 0.5; {query}") == (0, "9216\n0\n")
    code, table = await run("nvidia-smi")
    assert code == 0
    assert {len(line) for line in table.splitlines()[1:] if line} == {91}
    assert (await run("gpu-memory 11Gi 2>&1"))[1].endswith("MPS limit 10240 MiB per client\n")
    assert (await run("gpu-memory 10Gi --gpu 1 2>&1"))[1].endswith("9984 MiB memory of MIG instance 1g.10gb in use\n")
