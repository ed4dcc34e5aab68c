"""A simulated `/sys/class/net` for containers with simulated interfaces."""

from __future__ import annotations

from pathlib import Path

from allot.devices.nic.interfaces import Interface
from allot.driver import Mount
from allot.driver.files import replace_file


def sysfs_mount(folder: Path, interface: Interface, name: str) -> Mount:
    """An interface as the kernel would show it: its card's location and its RDMA device. name: in the container."""
    device = folder / interface.name / "device"
    device.mkdir(parents=True, exist_ok=True)
    if interface.rdma_name:
        (device / "infiniband" / interface.rdma_name).mkdir(parents=True, exist_ok=True)
    for file, text in (("numa_node", str(interface.numa_node)), ("local_cpulist", interface.local_cpus)):
        replace_file(device / file, f"{text}\n".encode(), 0o644)
    source = str(folder / interface.name)
    return Mount(host_path=source, container_path=f"/sys/class/net/{name}", options=("ro", "rbind"))
