"""The most copies that there could be, against a search of everything that could be done."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from . import world

CASES = 240
ANY = -1
_ROOT = f"{world.DRIVER}/root"


class Device(NamedTuple):
    """node: ANY if all nodes can use it; room: how often it can be had, or how much of it; slots: what it takes of the board that it is cut from."""

    node: int
    name: str
    model: str
    root: str
    room: int = 1
    shared: bool = False
    board: int = -1
    slots: frozenset[int] = frozenset()


class Request(NamedTuple):
    """amount: of a shared device."""

    model: str
    count: int = 1
    amount: int = 0


class Pod(NamedTuple):
    """same_root: all devices have to be on one root."""

    cpu: int
    requests: tuple[Request, ...]
    same_root: bool = False


class Case(NamedTuple):
    """cpus: of each node; held: devices in use."""

    cpus: tuple[int, ...]
    devices: tuple[Device, ...]
    held: frozenset[int]
    pods: tuple[Pod, ...]


# --- cases ---


def _case(seed: int, *, with_network: bool = False) -> Case:
    """with_network: there are devices that all nodes can use."""
    dice = random.Random(seed)
    nodes = dice.randint(1, 3)
    devices: list[Device] = []
    if with_network:
        devices += [Device(ANY, f"net-{n}", dice.choice("AB"), "r0") for n in range(dice.randint(1, 3))]
    for node in range(nodes):
        style = dice.choice(("plain", "plain", "cut", "shared"))
        if style == "cut":
            devices += _cut(node, node)
        elif style == "shared":
            count = dice.randint(1, 2)
            devices += [Device(node, f"gpu-{n}", "S", f"r{n}", dice.randint(2, 4), True) for n in range(count)]
        else:
            devices += [
                Device(node, f"gpu-{n}", dice.choice("AAAB"), dice.choice(("r0", "r1")))
                for n in range(dice.randint(2, 4))
            ]
    plain = [i for i, device in enumerate(devices) if not device.shared]
    held = frozenset(dice.sample(plain, k=min(len(plain), dice.choice((0, 0, 0, 1, 2)))))
    held = _consistent(devices, held)
    pods = tuple(_pod(dice, devices, dice.randrange(nodes)) for _ in range(dice.choice((1, 1, 1, 2, 3))))
    if dice.random() < 0.3:
        pods = pods[:1] * len(pods)
    return Case(tuple(dice.randint(2, 7) for _ in range(nodes)), tuple(devices), held, pods)


def _cut(node: int, board: int) -> list[Device]:
    return [
        Device(node, f"b-{kind}-{first}", f"cut-{kind}", "r0", 1, False, board, frozenset(range(first, first + size)))
        for kind, size in (("whole", 4), ("half", 2), ("quarter", 1))
        for first in range(0, 4, size)
    ]


def _consistent(devices: list[Device], held: frozenset[int]) -> frozenset[int]:
    """Without what could not be held at the same time."""
    kept: list[int] = []
    taken: dict[int, frozenset[int]] = {}
    for index in sorted(held):
        device = devices[index]
        if device.board >= 0:
            if taken.get(device.board, frozenset()) & device.slots:
                continue
            taken[device.board] = taken.get(device.board, frozenset()) | device.slots
        kept.append(index)
    return frozenset(kept)


def _pod(dice: random.Random, devices: list[Device], node: int) -> Pod:
    """A pod that one of the nodes may have devices for."""
    models = [device.model for device in devices if device.node == node]
    requests = []
    for _ in range(dice.choice((1, 1, 2))):
        model = dice.choice(models)
        amount = dice.randint(1, 2) if model == "S" else 0
        requests.append(Request(model, 1 if amount else dice.choice((1, 1, 2)), amount))
    return Pod(dice.choice((0, 1, 1, 2)), tuple(requests), dice.random() < 0.3)


# --- everything that could be done ---


def _search(case: Case) -> int:
    """The most copies: every pod on every node with every choice of devices."""
    room = [0 if index in case.held else device.room for index, device in enumerate(case.devices)]
    boards = {device.board for device in case.devices if device.board >= 0}
    slots = {board: frozenset(range(4)) for board in boards}
    for index in case.held:
        device = case.devices[index]
        if device.board >= 0:
            slots[device.board] -= device.slots
    order = sorted(boards)

    @cache
    def most(room: tuple[int, ...], slots: tuple[frozenset[int], ...], cpus: tuple[int, ...]) -> int:
        after = set(_copies(case, order, case.pods, room, slots, cpus))
        return max((1 + most(*state) for state in after), default=0)

    return most(tuple(room), tuple(slots[board] for board in order), case.cpus)


State = tuple[tuple[int, ...], tuple[frozenset[int], ...], tuple[int, ...]]


def _copies(
    case: Case,
    order: list[int],
    pods: tuple[Pod, ...],
    room: tuple[int, ...],
    slots: tuple[frozenset[int], ...],
    cpus: tuple[int, ...],
) -> Iterator[State]:
    if not pods:
        yield room, slots, cpus
        return
    pod = pods[0]
    for node, cpu in enumerate(cpus):
        if cpu < pod.cpu:
            continue
        rest = (*cpus[:node], cpu - pod.cpu, *cpus[node + 1 :])
        for other_room, other_slots in set(_devices(case, order, pod, pod.requests, node, room, slots, None)):
            yield from _copies(case, order, pods[1:], other_room, other_slots, rest)


def _devices(
    case: Case,
    order: list[int],
    pod: Pod,
    requests: tuple[Request, ...],
    node: int,
    room: tuple[int, ...],
    slots: tuple[frozenset[int], ...],
    root: str | None,
) -> Iterator[tuple[tuple[int, ...], tuple[frozenset[int], ...]]]:
    if not requests:
        yield room, slots
        return
    request = requests[0]
    fitting = [
        index
        for index, device in enumerate(case.devices)
        if device.node in (node, ANY) and device.model == request.model and room[index] >= (request.amount or 1)
    ]
    for chosen in itertools.combinations(fitting, request.count):
        roots = {case.devices[index].root for index in chosen} | ({root} if root is not None else set())
        if pod.same_root and len(roots) > 1:
            continue
        taken = _taken(case, order, chosen, request, room, slots)
        if taken is not None:
            found = roots.pop() if pod.same_root else None
            yield from _devices(case, order, pod, requests[1:], node, *taken, found)


def _taken(
    case: Case,
    order: list[int],
    chosen: tuple[int, ...],
    request: Request,
    room: tuple[int, ...],
    slots: tuple[frozenset[int], ...],
) -> tuple[tuple[int, ...], tuple[frozenset[int], ...]] | None:
    left, free = list(room), list(slots)
    for index in chosen:
        device = case.devices[index]
        left[index] -= request.amount or 1
        if device.board >= 0:
            place = order.index(device.board)
            if not device.slots <= free[place]:
                return None
            free[place] -= device.slots
    return tuple(left), tuple(free)


# --- the same case as objects ---


def _planned(case: Case, *quotas: Any) -> Any:
    cluster, templates, pods = _planned_parts(case, *quotas)
    return world.plan(cluster, *templates, *pods)


def _planned_parts(case: Case, *quotas: Any) -> tuple[Any, list[Any], list[Any]]:
    """The cluster, and templates and pods of the manifest."""
    objects: list[Any] = [world.device_class()]
    for node, cpu in enumerate(case.cpus):
        objects.append(world.node(f"n{node}", cpu=str(cpu)))
        own = [device for device in case.devices if device.node == node]
        slots = {f"slot-{slot}": {"value": "1"} for slot in range(4)}
        counters = [{"name": "board", "counters": slots}] if any(device.board >= 0 for device in own) else []
        if own:
            objects.append(world.slices(f"n{node}", [_published(device) for device in own], counters))
    network = [_published(device) for device in case.devices if device.node == ANY]
    if network:
        objects.append(world.slices("net", network, allNodes=True))
    for index in sorted(case.held):
        device = case.devices[index]
        pool = "net" if device.node == ANY else f"n{device.node}"
        objects.append(world.held(f"held-{index}", pool, device.name, pods=("somebody",)))
    templates = [_template(number, pod) for number, pod in enumerate(case.pods)]
    pods = [
        world.pod(f"p{number}", cpu=str(pod.cpu) if pod.cpu else "", templates=(f"t{number}",))
        for number, pod in enumerate(case.pods)
    ]
    return world.snapshot(*objects, *quotas), templates, pods


def _published(device: Device) -> dict[str, Any]:
    published = world.gpu(device.name, device.model)
    published["attributes"][_ROOT] = {"string": device.root}
    if device.shared:
        published["allowMultipleAllocations"] = True
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        published["capacity"] = {"units": {"value": str(device.room), "requestPolicy": policy}}
    if device.board >= 0:
        taken = {f"slot-{slot}": {"value": "1"} for slot in sorted(device.slots)}
        published["consumesCounters"] = [{"counterSet": "board", "counters": taken}]
    return published


def _template(number: int, pod: Pod) -> dict[str, Any]:
    requests = []
    for place, asked in enumerate(pod.requests):
        more = {"capacity": {"requests": {"units": str(asked.amount)}}} if asked.amount else {}
        requests.append(world.request(f"r{place}", asked.count, world.model_is(asked.model), **more))
    constraints = [{"matchAttribute": _ROOT}] if pod.same_root else []
    return world.template(f"t{number}", *requests, constraints=constraints)


@pytest.mark.parametrize("first", range(0, CASES, 40))
def test_the_maximum_is_what_a_search_of_everything_finds(first: int) -> None:
    for seed in range(first, first + 40):
        case = _case(seed)
        outcome = _planned(case)
        assert outcome.maximum.is_exact, f"seed {seed}: {outcome.maximum}"
        assert outcome.maximum.copies == _search(case), f"seed {seed}: {case}"
        assert outcome.scheduled <= outcome.maximum.copies, f"seed {seed}"


def test_where_nodes_share_devices_the_maximum_is_not_too_low_and_exact_only_if_it_is() -> None:
    exact = 0
    for seed in range(60):
        case = _case(seed, with_network=True)
        outcome, most = _planned(case), _search(case)
        assert outcome.scheduled <= most <= outcome.maximum.copies, f"seed {seed}: {case}"
        assert not outcome.maximum.is_exact or outcome.maximum.copies == most, f"seed {seed}: {case}"
        exact += outcome.maximum.is_exact
    assert exact > 30


def test_the_cases_are_not_trivial() -> None:
    found = [(_search(case), case) for case in map(_case, range(CASES))]
    assert sum(most > 1 for most, _ in found) > 40
    assert sum(most == 0 for most, _ in found) > 20
    assert sum(most > 0 and len(set(case.pods)) > 1 for most, case in found) > 10


# --- quotas ---

_NAMES = (
    "pods",
    "requests.cpu",
    "count/resourceclaims.resource.k8s.io",
    "gpu.deviceclass.resource.k8s.io/devices",
    "services",
)


def _charged(case: Case, name: str) -> int:
    """What a copy takes of something that a quota limits."""
    devices = sum(request.count for pod in case.pods for request in pod.requests)
    amounts = (len(case.pods), sum(pod.cpu for pod in case.pods), len(case.pods), devices, 0)
    return dict(zip(_NAMES, amounts, strict=True))[name]


def _held(case: Case, name: str) -> int:
    """What is taken already, by the claims that there are."""
    return len(case.held) if name in _NAMES[2:4] else 0


def _allowed(case: Case, hard: dict[str, int], used: dict[str, int]) -> int:
    """Copies one after another, as long as nothing is above its bound."""
    left = {name: hard[name] - used[name] for name in hard}
    for copies in itertools.count():
        for name in left:
            left[name] -= _charged(case, name)
        if any(amount < 0 for name, amount in left.items() if _charged(case, name)) or copies > 100:
            return copies
    raise AssertionError("counting ends")


def _quota(name: str, hard: dict[str, int], used: dict[str, int] | None) -> dict[str, Any]:
    limits = {key: str(value) for key, value in hard.items()}
    status = {} if used is None else {"hard": limits, "used": {key: str(value) for key, value in used.items()}}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": limits},
        "status": status,
    }


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_with_quotas_the_maximum_is_what_search_and_counting_find(first: int) -> None:
    limited = 0
    for seed in range(first, first + 40):
        case = _case(seed)
        dice = random.Random(seed)
        allowed = 1000
        quotas = []
        for number in range(dice.choice((1, 1, 2))):
            names = dice.sample(_NAMES, k=dice.randint(1, 3))
            if not all(pod.cpu for pod in case.pods) and "requests.cpu" in names:
                names = ["pods"]
            hard = {name: dice.randint(0, 6) for name in names}
            # Counted from what is there, or as the quota's status says.
            used = {name: dice.randint(0, 3) for name in names} if dice.random() < 0.5 else None
            quotas.append(_quota(f"q{number}", hard, used))
            allowed = min(allowed, _allowed(case, hard, used or {name: _held(case, name) for name in names}))
        outcome, most = _planned(case, *quotas), _search(case)
        assert outcome.maximum.is_exact, f"seed {seed}: {outcome.maximum}"
        assert outcome.maximum.copies == min(most, allowed), f"seed {seed}: {case} {quotas}"
        assert outcome.scheduled <= outcome.maximum.copies, f"seed {seed}"
        assert outcome.is_blocked_by_quota is (outcome.scheduled == allowed), f"seed {seed}"
        limited += allowed < most
    assert limited > 5
