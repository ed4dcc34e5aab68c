"""Programs and facts for containers with simulated devices: mounted into every PATH, readable by a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from allot.driver import Mount
from allot.driver.files import replace_file

# On every PATH, and small: a rootless runtime must rebuild a directory to add a file to it.
CONTAINER_PROGRAMS = "/usr/local/bin"
# A line in a program, and its replacement in containers: the loop over the container's devices.
_USES_EACH_DEVICE = "# each_device.sh\n"
_EACH_DEVICE = Path(__file__).parent / "each_device.sh"


def write_programs(source: Path, names: Sequence[str], folder: Path) -> None:
    """Write programs to where containers mount them from."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        text = (source / name).read_text().replace(_USES_EACH_DEVICE, _EACH_DEVICE.read_text())
        _replace_if_changed(folder / name, text.encode(), 0o755)


def program_mounts(folder: Path, names: Sequence[str]) -> tuple[Mount, ...]:
    """The programs on a container's PATH."""
    return tuple(
        Mount(host_path=str(folder / name), container_path=f"{CONTAINER_PROGRAMS}/{name}", options=("ro", "bind"))
        for name in names
    )


def write_information(path: Path, information: Mapping[str, str]) -> None:
    """A device's facts in shell syntax."""
    text = "".join(f"{key}={shlex.quote(value)}\n" for key, value in information.items())
    _replace_if_changed(path, text.encode(), 0o644)


def information_mount(folder: Path, information: Mapping[str, str], container_path: str) -> Mount:
    """Mount a simulated device's facts where the programs find them. folder: of the device, created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    write_information(folder / "info", information)
    return Mount(host_path=str(folder), container_path=container_path, options=("ro", "rbind"))


def _replace_if_changed(path: Path, content: bytes, mode: int) -> None:
    """Replace a file only if necessary: a container may be using it."""
    if not path.exists() or path.read_bytes() != content:
        replace_file(path, content, mode)
