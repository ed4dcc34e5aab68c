"""Which CPUs a claim gets: whole cores first, so that cores are shared only if necessary."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from allot.devices.cpu.topology import Cpu


class NotEnoughCpus(ValueError):
    """A group has fewer free CPUs than wanted."""


def choose(group: Sequence[Cpu], taken: Collection[int], count: int) -> tuple[int, ...]:
    """The given number of free CPUs of a group; NotEnoughCpus.

    Whole free cores while they fit, then free CPUs of cores that are already in use, and only then part of a free core.
    Lowest numbers first, so the choice is deterministic.
    """
    held = frozenset(taken)
    cores: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in sorted(group, key=lambda cpu: (cpu.socket, cpu.numa_node, cpu.core, cpu.id)):
        cores.setdefault((cpu.socket, cpu.core), []).append(cpu)
    free = {core: [cpu.id for cpu in cpus if cpu.id not in held] for core, cpus in cores.items()}
    available = sum(map(len, free.values()))
    if available < count:
        raise NotEnoughCpus(f"{count} CPUs wanted, {available} of {len(group)} are free")
    chosen: list[int] = []
    whole = [core for core, cpus in cores.items() if len(free[core]) == len(cpus)]
    for core in whole:
        if len(free[core]) <= count - len(chosen):
            chosen += free.pop(core)
    for core in (*(each for each in free if each not in whole), *(each for each in whole if each in free)):
        chosen += free[core][: count - len(chosen)]
    return tuple(sorted(chosen))
