"""The files of an installed NVIDIA driver that a container needs: libraries, programs, device files.

Libraries are found by the version in their names, where distributions and the driver's own container put them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from allot.driver import DeviceNode, Edits, Hook, Mount

_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "usr/local/nvidia/lib64",
    "home/kubernetes/bin/nvidia/lib64",
)
_LIBRARIES = ("libcuda", "libcudadebugger", "libnvcuvid", "libnvidia-", "libvdpau_nvidia", "libnvoptix")
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_PROGRAM_FOLDERS = ("usr/bin", "usr/local/nvidia/bin", "home/kubernetes/bin/nvidia/bin")
_DEVICE_FILES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_HOOKS = ("usr/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook")


def find_library(root: Path, name: str) -> str:
    """A library of the driver below its root, for programs that see the host's files there; the bare name if the root is `/`."""
    if root == Path("/") or "/" in name:
        return name
    for folder in _LIBRARY_FOLDERS:
        # Distributions may use absolute links, which are broken here; then use the file with the version in its name.
        for path in (root / folder / name, *sorted((root / folder).glob(f"{name.removesuffix('.1')}.*.*"))):
            if path.exists():
                return str(path)
    return name


def driver_edits(root: Path, version: str, host_root: Path | None = None) -> Edits:
    """The common part of all devices. root: where the driver is installed; host_root: its path on the host, if this process has it
    mounted elsewhere."""
    libraries = _libraries(root, version)
    folders = tuple(dict.fromkeys(str(Path(mount.container_path).parent) for mount in libraries))
    on_host = root if host_root is None else host_root
    return Edits(
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        device_nodes=tuple(DeviceNode(path=f"/dev/{name}") for name in _DEVICE_FILES if (root / "dev" / name).exists()),
        mounts=tuple(
            msgspec.structs.replace(each, host_path=_moved(each.host_path, root, on_host))
            for each in (*libraries, *_programs(root))
        ),
        hooks=tuple(
            msgspec.structs.replace(each, path=_moved(each.path, root, on_host)) for each in _hooks(root, folders)
        ),
    )


def _moved(path: str, root: Path, on_host: Path) -> str:
    return str(on_host / Path(path).relative_to(root))


def _libraries(root: Path, version: str) -> tuple[Mount, ...]:
    found: dict[str, Mount] = {}
    for folder in _LIBRARY_FOLDERS:
        for path in sorted((root / folder).glob(f"*.so.{version}")):
            if path.name.startswith(_LIBRARIES) and path.name not in found:
                found[path.name] = _mount(root, path)
    return tuple(found.values())


def _programs(root: Path) -> tuple[Mount, ...]:
    found: dict[str, Mount] = {}
    for folder in _PROGRAM_FOLDERS:
        for name in _PROGRAMS:
            if name not in found and (root / folder / name).is_file():
                found[name] = _mount(root, root / folder / name)
    return tuple(found.values())


def _mount(root: Path, path: Path) -> Mount:
    inside = "/" + str(path.relative_to(root))
    return Mount(host_path=str(path), container_path=inside, options=("ro", "nosuid", "nodev", "rbind", "rprivate"))


def _hooks(root: Path, folders: tuple[str, ...]) -> tuple[Hook, ...]:
    """Update the linker's cache, which creates links such as libcuda.so.1, with NVIDIA's hook if it is installed."""
    program = next((root / path for path in _HOOKS if (root / path).is_file()), None)
    if program is None or not folders:
        return ()
    arguments = [argument for folder in folders for argument in ("--folder", folder)]
    return (Hook(hook_name="createContainer", path=str(program), args=(program.name, "update-ldcache", *arguments)),)
