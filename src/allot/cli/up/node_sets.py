"""The nodes of `allot up`: from the command line, from a file, or from the last start, which the data directory records."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from allot.cli.errors import Unreadable
from allot.core.scheduling import HOSTNAME
from allot.devices.catalogue import NODES_MAX, UnknownProfile, find_profile
from allot.devices.class_pools import PREFIX
from allot.devices.file.definition import DeviceFile, read_device_file
from allot.devices.node_files import (
    NodeFile,
    NodeSet,
    default_name,
    hint_for,
    read_node_file,
    with_device_file,
)
from allot.devices.pool_files import PoolFile, PoolSpec

LOCAL, NONE = "local", "none"
_KEPT = "nodes.json"
_SIMULATED = "simulated-nodes.json"
_POOLS = "pools.json"


class Nodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Simulated nodes, and whether this machine is a node too."""

    simulated: tuple[NodeSet, ...] = ()
    local: bool = False
    # Of this machine.
    local_devices: tuple[DeviceFile, ...] = ()
    # Of the simulated cloud.
    pools: PoolFile = PoolFile()

    @property
    def are_none(self) -> bool:
        """Whether there is only a control plane."""
        return not self.are_simulated and not self.local

    @property
    def are_simulated(self) -> bool:
        """Whether there are simulated nodes, or may be."""
        return bool(self.simulated) or self.pools.is_used

    def drivers_of_pool(self, name: str, machine: str = "") -> tuple[str, ...]:
        """The kinds of drivers on the nodes of a pool. machine: of a pool that was created on demand."""
        pool = next((each for each in self.pools.pools if each.name == name), None)
        if pool is None and name.startswith(PREFIX) and machine:
            pool = PoolSpec(name=name, machine=machine)
        return tuple(pool.nodes(name).resolved()[1].kinds.values()) if pool is not None else ()

    @property
    def publishers(self) -> dict[str, frozenset[str]]:
        """The drivers that publish devices on each simulated node."""
        return {
            name: drivers
            for each in self.simulated
            for drivers in (each.resolved()[1].publishers(each.names[0]),)
            for name in each.names
        }

    @property
    def publishers_of_pools(self) -> dict[str, frozenset[str]]:
        """The drivers that publish devices on the nodes of each pool."""
        return {pool.name: pool.nodes(pool.name).resolved()[1].publishers(pool.name) for pool in self.pools.pools}

    def write_pools(self, folder: Path) -> Path:
        """A file for `allot node --pools`."""
        path = folder / _POOLS
        path.write_bytes(msgspec.json.encode(self.pools))
        return path

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        own = (local_name(),) if self.local else ()
        return (*own, *(name for each in self.simulated for name in each.names))

    @property
    def drivers(self) -> dict[str, tuple[str, ...]]:
        """Which kinds of drivers run on each simulated node."""
        return {
            name: tuple(drivers.kinds.values())
            for each in self.simulated
            for drivers in (each.resolved()[1],)
            for name in each.names
        }

    def write_simulated(self, folder: Path) -> Path:
        """A file for `allot node --nodes`."""
        path = folder / _SIMULATED
        path.write_bytes(msgspec.json.encode(NodeFile(self.simulated)))
        return path


def local_name() -> str:
    """What this machine is called as a node."""
    return socket.gethostname().lower()


def parse_specs(specs: Sequence[str]) -> Nodes:
    """The nodes of `--node`, each a profile, PROFILE=COUNT, a file, `local` or `none`. Unreadable."""
    if NONE in specs and len(specs) > 1:
        raise Unreadable(f"--node {NONE}: cannot be used together with other nodes")
    found = [each for spec in specs if spec not in (LOCAL, NONE) for each in parse_sets(spec, "--node")]
    nodes = Nodes(simulated=tuple(found), local=LOCAL in specs)
    if len(nodes.all_names) > NODES_MAX:
        raise Unreadable(f"--node: {len(nodes.all_names)} nodes, expected at most {NODES_MAX}")
    for name, count in Counter(nodes.all_names).items():
        if count > 1:
            raise Unreadable(
                f"--node: two nodes would have the name {name}", "PROFILE=COUNT creates several nodes of a profile"
            )
    return nodes


def with_device_files(nodes: Nodes, paths: Sequence[Path]) -> Nodes:
    """The same nodes, pools of them and this machine, with the devices of files. Unreadable if nothing has the devices of one."""
    simulated, pools, local = nodes.simulated, nodes.pools.pools, nodes.local_devices
    drivers: set[str] = set()
    for path in paths:
        file = read_device_file(path)
        if file.driver in drivers:
            raise Unreadable(f"--devices {path}: driver {file.driver} is also in an earlier --devices")
        drivers.add(file.driver)
        simulated = with_device_file(simulated, file)
        pools = tuple(pool.with_device_file(file) for pool in pools)
        if nodes.local and file.selects({HOSTNAME: local_name()}):
            local = (*(each for each in local if each.driver != file.driver), file)
        devices = [local, *(each.devices for each in simulated), *(pool.devices for pool in pools)]
        if not any(file in each for each in devices):
            wanted = ", ".join(f"{key}={value}" for key, value in file.node_selector.items())
            missing = f"nodeSelector {wanted}: no node has these labels" if wanted else "there are no nodes"
            raise Unreadable(f"device file of driver {file.driver}: {missing}")
    of_pools = msgspec.structs.replace(nodes.pools, pools=pools)
    return msgspec.structs.replace(nodes, simulated=simulated, pools=of_pools, local_devices=local)


def parse_sets(spec: str, option: str) -> Sequence[NodeSet]:
    """The nodes of a profile, PROFILE=COUNT or file. option: its name, for messages. Unreadable."""
    if spec.endswith((".yaml", ".yml", ".json")) or ("/" in spec and "=" not in spec):
        return read_node_file(Path(spec)).nodes
    profile, count = parse_count(spec, option)
    try:
        find_profile(profile)
    except UnknownProfile as error:
        raise Unreadable(f"{option}: {error}", f"{hint_for(error)} (allot up --list-profiles lists all)") from None
    return (NodeSet(profile=profile, name=default_name(profile), count=count),)


def parse_count(spec: str, option: str) -> tuple[str, int]:
    """NAME, or NAME=COUNT. Unreadable."""
    name, equals, count = spec.rpartition("=")
    if not equals:
        return spec, 1
    if not (count.isascii() and count.isdigit()) or not 1 <= int(count[:9]) <= NODES_MAX:
        raise Unreadable(f"{option} {spec}: {count!r} is not a number of nodes from 1 to {NODES_MAX}")
    return name, int(count)


def kept_nodes(folder: Path) -> Nodes | None:
    """Those of the last start; None if there was none."""
    path = folder / _KEPT
    try:
        return msgspec.json.decode(path.read_bytes(), type=Nodes)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise Unreadable(f"{path}: {error}", "define the nodes with --node") from None


def keep_nodes(folder: Path, nodes: Nodes) -> None:
    """For the next start."""
    (folder / _KEPT).write_bytes(msgspec.json.encode(nodes))
