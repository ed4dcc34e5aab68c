"""A simulated cloud: machines that boot slowly, are out of stock, fail and are reclaimed, all from a seed.

`Machines` defines what a machine is and how its node joins and leaves. The state is on disk (`path`), so that a process that
is killed between two steps finds all machines again: the cloud knows every machine. Times are divided by a factor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec

from allot.autoscaler.provider import (
    POOL_LABEL,
    Group,
    GroupOptions,
    Instance,
    NodeName,
    ProviderError,
    State,
    TemplateNode,
)
from allot.process.clock import Clock

_log = logging.getLogger("allot.autoscaler")

SCHEME = "simulated"
OUT_OF_STOCK, QUOTA_EXCEEDED, BROKEN = "OUT_OF_STOCK", "QUOTA_EXCEEDED", "MACHINE_BROKEN"
_HOUR_S = 3600.0
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_LOOK_S = 0.02


class Window(msgspec.Struct, frozen=True):
    """A limit on the machines of a pool between two times after the start of the cloud, in seconds."""

    from_s: float
    to_s: float
    stock: int


class CloudPool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal machines. price: per hour; boot_s: until the node registers, driver_s: from then until its devices are published; stock: how many
    exist, None for unlimited; failing: the fraction of machines that break during boot; silent: the fraction that never
    registers; deaf: the fraction whose drivers never publish; reclaims_per_hour: how often a spot machine is reclaimed; origin: for a pool
    that exists only while it has machines, what is needed to offer it again."""

    name: str
    template: TemplateNode
    min_size: int = 0
    max_size: int = 10
    initial: int = 0
    price: float = 0.0
    spot: bool = False
    boot_s: float = 40.0
    driver_s: float = 20.0
    stock: int | None = None
    windows: tuple[Window, ...] = ()
    failing: float = 0.0
    silent: float = 0.0
    deaf: float = 0.0
    reclaims_per_hour: float = 0.0
    origin: str = ""


class Machines(Protocol):
    """Creates and removes the nodes of machines."""

    async def start(self, pool: str, name: str, provider_id: str) -> None:
        """The machine is up: its node registers."""

    async def publish(self, name: str) -> None:
        """Start the drivers of the node."""

    async def stop(self, name: str) -> None:
        """Remove the machine."""


class _Machine(msgspec.Struct, kw_only=True):
    """A stored machine. node_at, devices_at, reclaimed_at: seconds since 1970, None for never."""

    pool: str
    name: str
    state: State = State.CREATING
    error_code: str = ""
    error: str = ""
    node_at: float | None = None
    devices_at: float | None = None
    reclaimed_at: float | None = None
    has_node: bool = False
    has_devices: bool = False

    @property
    def id(self) -> str:
        """The providerID of its node."""
        return f"{SCHEME}://{self.pool}/{self.name}"


class _Kept(msgspec.Struct, kw_only=True):
    """The stored state. began: when the cloud started; count: of all machines ever, which seeds the dice."""

    began: float
    count: int = 0
    targets: dict[str, int] = {}
    machines: dict[str, _Machine] = {}
    # Origins of pools that were created on demand.
    made: dict[str, str] = {}


class SimulatedCloud:
    """Implements the provider port. quota: for all machines together, None for unlimited."""

    def __init__(
        self,
        pools: Sequence[CloudPool],
        machines: Machines,
        clock: Clock,
        path: Path,
        *,
        seed: int = 0,
        factor: float = 1.0,
        quota: int | None = None,
    ) -> None:
        self._pools = {pool.name: pool for pool in pools}
        # Pools that could be created.
        self._offers: dict[str, CloudPool] = {}
        self._machines = machines
        self._clock = clock
        self._path = path
        self._seed = seed
        self._factor = factor
        self._quota = quota
        self._kept = self._read()
        self._news = asyncio.Event()

    # --- changing pools ---

    @property
    def made_before(self) -> Mapping[str, str]:
        """The origins of pools that were created on demand, by name: to be restored after a restart."""
        return self._kept.made

    def put(self, pool: CloudPool) -> None:
        """Add a pool, or replace the one with its name."""
        self._pools[pool.name] = pool

    def offer(self, pools: Sequence[CloudPool]) -> None:
        """Replace the set of pools that can be created on demand. Existing pools stay unchanged."""
        self._offers = {pool.name: pool for pool in pools}

    # --- the port ---

    async def refresh(self) -> None:
        """Remove empty pools that were created on demand; they can be created again while they are offered."""
        gone = [name for name in self._kept.made if not self._kept.targets.get(name) and not self._of(name)]
        for name in gone:
            del self._kept.made[name]
            self._pools.pop(name, None)
            self._kept.targets.pop(name, None)
        if gone:
            self._keep()

    async def groups(self) -> Sequence[Group]:
        """The pools."""
        return [
            Group(id=pool.name, min_size=pool.min_size, max_size=pool.max_size, debug=f"simulated pool {pool.name}")
            for pool in self._all().values()
        ]

    def _all(self) -> dict[str, CloudPool]:
        return {**self._offers, **self._pools}

    async def group_of(self, node: NodeName) -> str:
        """The pool of a node, by its providerID."""
        pool, _, name = node.provider_id.removeprefix(f"{SCHEME}://").partition("/")
        return pool if node.provider_id.startswith(SCHEME) and name and pool in self._all() else ""

    async def target_size(self, group: str) -> int:
        """The target size."""
        self._pool(group)
        return self._kept.targets.get(group, 0)

    async def increase(self, group: str, delta: int) -> None:
        """Add machines; unavailable ones appear with an error, as in real clouds."""
        pool = self._pool(group)
        target = self._kept.targets.get(group, 0) + delta
        if delta <= 0 or target > pool.max_size:
            raise ProviderError(f"pool {group}: {target} machines, expected at most {pool.max_size}")
        self._kept.targets[group] = target
        if group not in self._pools:
            self._pools[group] = pool
            self._kept.made[group] = pool.origin
        for _ in range(delta):
            self._make(pool)
        self._keep()

    async def decrease_target(self, group: str, delta: int) -> None:
        """Remove machines without a node, youngest first."""
        self._pool(group)
        waiting = [each for each in self._of(group) if not each.has_node]
        if delta <= 0 or delta > len(waiting):
            raise ProviderError(
                f"pool {group}: {delta} machines fewer, expected at most the {len(waiting)} that have no node yet"
            )
        for machine in waiting[-delta:]:
            del self._kept.machines[machine.name]
        self._kept.targets[group] -= delta
        self._keep()

    async def delete(self, group: str, nodes: Sequence[NodeName]) -> None:
        """Remove these machines."""
        self._pool(group)
        found = []
        for node in nodes:
            name = node.provider_id.rpartition("/")[2] or node.name
            machine = self._kept.machines.get(name)
            if machine is None or machine.pool != group:
                raise ProviderError(f"pool {group}: there is no machine {name}")
            found.append(machine)
        for machine in found:
            if machine.state is not State.DELETING:
                machine.state = State.DELETING
                self._kept.targets[group] -= 1
        self._keep()

    async def instances(self, group: str) -> Sequence[Instance]:
        """The machines of a pool."""
        self._pool(group)
        return [
            Instance(
                id=each.id,
                state=each.state,
                error_code=each.error_code,
                error=each.error,
                is_out_of_resources=each.error_code in (OUT_OF_STOCK, QUOTA_EXCEEDED),
            )
            for each in self._of(group)
        ]

    async def template(self, group: str) -> TemplateNode | None:
        """The template of a pool's nodes."""
        return self._pool(group).template

    async def price(self, node: NodeName, start: float, end: float) -> float | None:
        """The price, at an hourly rate."""
        group = await self.group_of(node) or node.labels.get(POOL_LABEL, "")
        return self._pool(group).price * (end - start) / _HOUR_S

    async def options(self, group: str, defaults: GroupOptions) -> GroupOptions | None:  # noqa: ARG002
        """None: all pools use the defaults."""
        self._pool(group)
        return None

    async def close(self) -> None:
        """Nothing to release."""

    # --- changing machines ---

    async def run(self) -> None:
        """Run until cancelled."""
        for pool in self._pools.values():
            if pool.name not in self._kept.targets:
                self._kept.targets[pool.name] = 0
                first = max(pool.initial, pool.min_size)
                if first:
                    await self.increase(pool.name, first)
        for machine in self._kept.machines.values():
            # Machines of an earlier process.
            machine.has_node = machine.has_devices = False
            if machine.pool not in self._pools:
                machine.state = State.DELETING
        self._keep()
        while True:
            for machine in list(self._kept.machines.values()):
                await self._move(machine)
            await self._clock.sleep(_LOOK_S)

    async def _move(self, machine: _Machine) -> None:
        """Perform the due steps of a machine."""
        now = self._clock.seconds()
        if machine.reclaimed_at is not None and machine.reclaimed_at <= now and machine.state is not State.DELETING:
            _log.info("machine %s is reclaimed by the cloud", machine.name)
            machine.state = State.DELETING
            self._kept.targets[machine.pool] -= 1
        if machine.state is State.DELETING:
            await self._machines.stop(machine.name)
            self._kept.machines.pop(machine.name, None)
        elif not machine.has_node and machine.node_at is not None and machine.node_at <= now:
            machine.state = State.RUNNING
            await self._machines.start(machine.pool, machine.name, machine.id)
            machine.has_node = True
        elif (
            machine.has_node
            and not machine.has_devices
            and machine.devices_at is not None
            and machine.devices_at <= now
        ):
            await self._machines.publish(machine.name)
            machine.has_devices = True
        else:
            return
        self._keep()

    def _make(self, pool: CloudPool) -> None:
        now, kept = self._clock.seconds(), self._kept
        kept.count += 1
        dice = Random(f"{self._seed}/{pool.name}/{kept.count}")
        suffix = "".join(dice.choice(_LETTERS) for _ in range(5))
        machine = _Machine(pool=pool.name, name=f"{pool.name}-{suffix}-{kept.count}")
        running = sum(1 for each in kept.machines.values() if not each.error_code)
        if self._quota is not None and running >= self._quota:
            machine.error_code, machine.error = QUOTA_EXCEEDED, f"quota of {self._quota} machines exceeded"
        elif (stock := self._stock(pool, now)) is not None and len(self._alive(pool.name)) >= stock:
            machine.error_code, machine.error = OUT_OF_STOCK, f"no {pool.name} in stock: there are {stock}"
        elif dice.random() < pool.failing:
            machine.error_code, machine.error = BROKEN, "the machine broke during boot"
        elif dice.random() >= pool.silent:
            machine.node_at = now + pool.boot_s / self._factor
            if dice.random() >= pool.deaf:
                machine.devices_at = machine.node_at + pool.driver_s / self._factor
            if pool.spot and pool.reclaims_per_hour:
                hours = dice.expovariate(pool.reclaims_per_hour)
                machine.reclaimed_at = machine.node_at + hours * _HOUR_S / self._factor
        kept.machines[machine.name] = machine

    def _stock(self, pool: CloudPool, now: float) -> int | None:
        since = (now - self._kept.began) * self._factor
        window = next((each.stock for each in pool.windows if each.from_s <= since < each.to_s), None)
        return pool.stock if window is None else window

    def _alive(self, pool: str) -> list[_Machine]:
        return [each for each in self._of(pool) if not each.error_code]

    def _of(self, pool: str) -> list[_Machine]:
        return [each for each in self._kept.machines.values() if each.pool == pool]

    def _pool(self, name: str) -> CloudPool:
        pool = self._pools.get(name) or self._offers.get(name)
        if pool is None:
            raise ProviderError(f"there is no pool {name}")
        return pool

    # --- on disk ---

    def _read(self) -> _Kept:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return _Kept(began=self._clock.seconds())

    def _keep(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(self._kept))
        new.replace(self._path)
