"""A simulated NVLink fabric for containers: files instead of channel devices, and a daemon that only runs.

The folder of a node's driver holds `claims/<claim>` with the channels that a claim got, `domains/<domain>` which the daemon sees as `/imexd`, `bin` with
stand-ins for nvidia-imex and nvidia-imex-ctl, and `fabric-fault` if someone has broken the fabric (`break_fabric`).
"""

from __future__ import annotations

from pathlib import Path

from allot.core.model.compute_domains import CLIQUE_NODES_MAX, ComputeDomain
from allot.devices.container_programs import program_mounts, write_programs
from allot.driver import Edits, Mount
from allot.driver.files import remove_file, remove_folder, replace_file

CHANNELS = 2048
CHANNEL_FOLDER = "/dev/nvidia-caps-imex-channels"
DAEMON_FOLDER = "/imexd"
PROGRAMS = ("nvidia-imex", "nvidia-imex-ctl")
_SOURCE = Path(__file__).parent / "container_programs"
_CONFIGURATION = f"""\
SERVER_PORT=50000
IMEX_CMD_PORT=50005
IMEX_CMD_ENABLED=1
IMEX_NODE_CONFIG_FILE={DAEMON_FOLDER}/nodes.cfg
"""


class SimulatedImex:
    """folder: the driver's directory on a node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def channel_edits(self, claim_uid: str, *, are_all: bool) -> Edits:
        """The channels of a claim. The directory belongs to the claim: other pods do not see what a pod writes there."""
        folder = self._folder / "claims" / claim_uid
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(CHANNELS if are_all else 1):
            channel = folder / f"channel{number}"
            if not channel.exists():
                channel.touch()
                channel.chmod(0o666)
        return Edits(mounts=(_mount(folder, CHANNEL_FOLDER, "rw"),))

    def remove_channels(self, claim_uid: str) -> None:
        """Remove the channels of a claim, if any."""
        remove_folder(self._folder / "claims" / claim_uid)

    def daemon_edits(self, domain: ComputeDomain, clique: str) -> Edits:
        """The daemon of a domain: its programs, its directory with the names of its peers, and its environment."""
        metadata = domain.metadata
        folder = self._domain_folder(metadata.uid)
        folder.mkdir(parents=True, exist_ok=True)
        peers = "".join(f"compute-domain-daemon-{index:04d}\n" for index in range(CLIQUE_NODES_MAX))
        replace_file(folder / "imexd.cfg", _CONFIGURATION.encode(), 0o644)
        replace_file(folder / "nodes.cfg", peers.encode(), 0o644)
        programs = self._folder / "bin"
        write_programs(_SOURCE, PROGRAMS, programs)
        return Edits(
            env={
                "CLIQUE_ID": clique,
                "COMPUTE_DOMAIN_UUID": metadata.uid,
                "COMPUTE_DOMAIN_NAME": metadata.name,
                "COMPUTE_DOMAIN_NAMESPACE": metadata.namespace,
            },
            mounts=(_mount(folder, DAEMON_FOLDER, "rw"), *program_mounts(programs, PROGRAMS)),
        )

    def remove_daemon(self, domain_uid: str) -> None:
        """Remove the directory of a domain, if it exists."""
        remove_folder(self._domain_folder(domain_uid))

    def _domain_folder(self, uid: str) -> Path:
        return self._folder / "domains" / uid

    @property
    def fault(self) -> str:
        """What is wrong with the machine's fabric; empty if healthy."""
        try:
            return fault_file(self._folder).read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""


def _mount(source: Path, target: str, mode: str) -> Mount:
    return Mount(host_path=str(source), container_path=target, options=(mode, "rbind"))


def fault_file(folder: Path) -> Path:
    """The file with the fault of the fabric."""
    return folder / "fabric-fault"


def break_fabric(folder: Path, fault: str) -> None:
    """Break the fabric of a simulated machine, or repair it if the text is empty. OSError if there is no such machine."""
    if fault:
        replace_file(fault_file(folder), f"{fault}\n".encode(), 0o644)
    else:
        remove_file(fault_file(folder))
