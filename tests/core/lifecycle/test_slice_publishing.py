"""Devices become slices that the API accepts, and slices that exist become those."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.features import ALL_GATES
from allot.core.lifecycle.slice_publishing import Pool, Writes, check_pools, cut, plan_removal, plan_writes
from allot.core.model.codec import encode
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.resource_v1 import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.core.quantity import Quantity
from allot.core.validation.validate import check_object

DRIVER = "gpu.example.com"
OWNER = OwnerReference(api_version="v1", kind="Node", name="n1", uid="node-uid", controller=True)
TAINT = DeviceTaint(key="example.com/broken", effect="NoSchedule")
ONE = Counter(value=Quantity.parse("1"))


def devices(count: int, **fields: object) -> tuple[Device, ...]:
    return tuple(Device(name=f"gpu-{number}", **fields) for number in range(count))  # type: ignore[arg-type]


def pool(given: tuple[Device, ...], **fields: object) -> Pool:
    return Pool(name="n1", node_name="n1", devices=given, **fields)  # type: ignore[arg-type]


class Server:
    """Carries out writes as an API server does."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self._version = 0

    def apply(self, writes: Writes) -> Writes:
        for slice_ in writes.deletes:
            del self.slices[slice_.metadata.name]
        for update in writes.updates:
            self._store(update.slice.metadata.name, update.slice.metadata, update.spec)
        for slice_ in writes.creates:
            name = f"{slice_.metadata.generate_name}{self._version:05}"
            self._store(
                name, msgspec.structs.replace(slice_.metadata, name=name, uid=f"uid-{self._version}"), slice_.spec
            )
        return writes

    def _store(self, name: str, metadata: ObjectMeta, spec: ResourceSliceSpec) -> None:
        self._version += 1
        timed = tuple(
            msgspec.structs.replace(
                device,
                taints=tuple(
                    msgspec.structs.replace(taint, time_added=taint.time_added or "2026-01-01T00:00:00Z")
                    for taint in device.taints
                ),
            )
            for device in spec.devices or ()
        )
        spec = msgspec.structs.replace(spec, devices=timed if spec.devices is not None else None)
        metadata = msgspec.structs.replace(metadata, resource_version=str(self._version))
        self.slices[name] = ResourceSlice(metadata=metadata, spec=spec)

    def publish(self, wanted: Pool) -> Writes:
        return self.apply(plan_writes(DRIVER, wanted, list(self.slices.values()), OWNER))

    def published(self) -> list[str]:
        return [device.name for name in sorted(self.slices) for device in self.slices[name].spec.devices or ()]

    def generations(self) -> set[int]:
        return {slice_.spec.pool.generation for slice_ in self.slices.values()}


def test_devices_are_cut_at_128() -> None:
    assert [len(spec.devices or ()) for spec in cut(DRIVER, pool(devices(300)))] == [128, 128, 44]


def test_devices_with_taints_are_cut_at_64() -> None:
    assert [len(spec.devices or ()) for spec in cut(DRIVER, pool(devices(130, taints=(TAINT,))))] == [64, 64, 2]


def test_one_demanding_device_makes_only_its_own_slice_short() -> None:
    plain, tainted = devices(200), Device(name="bad", taints=(TAINT,))
    assert [len(spec.devices or ()) for spec in cut(DRIVER, pool((*plain, tainted)))] == [128, 72, 1]


def test_a_list_attribute_counts_as_demanding() -> None:
    listed = devices(65, attributes={"roots": DeviceAttribute(strings=("a", "b"))})
    assert [len(spec.devices or ()) for spec in cut(DRIVER, pool(listed))] == [64, 1]


def test_counter_sets_get_slices_of_their_own_of_at_most_eight() -> None:
    sets = tuple(CounterSet(name=f"set-{number}", counters={"memory": ONE}) for number in range(9))
    specs = cut(DRIVER, pool(devices(1), counter_sets=sets))
    assert [len(spec.shared_counters or ()) for spec in specs] == [8, 1, 0]
    assert [spec.devices for spec in specs[:2]] == [None, None]
    assert {spec.pool.resource_slice_count for spec in specs} == {3}


def test_a_pool_without_devices_is_one_empty_slice() -> None:
    (spec,) = cut(DRIVER, pool(()))
    assert spec.devices == ()


def test_the_first_publication_has_generation_one_and_upstreams_names() -> None:
    writes = Server().publish(pool(devices(130)))
    assert [slice_.metadata.generate_name for slice_ in writes.creates] == [
        "00000-gpu.example.com-n1-",
        "00001-gpu.example.com-n1-",
    ]
    assert {slice_.spec.pool.generation for slice_ in writes.creates} == {1}
    assert writes.creates[0].metadata.owner_references == (OWNER,)


def test_nothing_is_written_when_nothing_has_changed() -> None:
    server = Server()
    server.publish(pool(devices(130, taints=(TAINT,))))
    assert server.publish(pool(devices(130, taints=(TAINT,)))).is_empty


def test_a_change_in_one_slice_keeps_the_generation() -> None:
    server = Server()
    server.publish(pool(devices(130)))
    changed = (*devices(129), Device(name="gpu-129", attributes={"model": DeviceAttribute(string="x")}))
    writes = server.publish(pool(changed))
    assert (len(writes.updates), len(writes.creates), server.generations()) == (1, 0, {1})


def test_changes_in_two_slices_make_a_new_generation_of_all() -> None:
    server = Server()
    server.publish(pool(devices(300)))
    writes = server.publish(pool(tuple(reversed(devices(300)))))
    assert (len(writes.updates), server.generations()) == (3, {2})


def test_more_slices_make_a_new_generation() -> None:
    server = Server()
    server.publish(pool(devices(128)))
    writes = server.publish(pool(devices(129)))
    assert (len(writes.updates), len(writes.creates), server.generations()) == (1, 1, {2})


def test_fewer_slices_leave_no_slice_of_before() -> None:
    server = Server()
    server.publish(pool(devices(300)))
    writes = server.publish(pool(devices(100)))
    assert (len(writes.deletes), server.published()) == (2, [device.name for device in devices(100)])


def test_a_generation_of_the_drivers_own_is_taken_if_it_is_larger() -> None:
    server = Server()
    server.publish(pool(devices(1), generation=7))
    assert server.generations() == {7}
    server.publish(pool(devices(2), generation=3))
    assert server.generations() == {7}


def test_a_deleted_slice_comes_back_in_a_new_generation() -> None:
    server = Server()
    server.publish(pool(devices(300)))
    del server.slices[min(server.slices)]
    server.publish(pool(devices(300)))
    assert (server.generations(), server.published()) == ({2}, [device.name for device in devices(300)])


def test_slices_with_names_of_others_are_replaced() -> None:
    server = Server()
    server.publish(pool(devices(2)))
    (name,) = server.slices
    slice_ = server.slices.pop(name)
    server.slices["mine"] = msgspec.structs.replace(slice_, metadata=ObjectMeta(name="mine", uid="u"))
    writes = server.publish(pool(devices(2)))
    assert [each.metadata.name for each in writes.deletes] == ["mine"]


def test_a_second_slice_for_the_same_place_is_removed() -> None:
    server = Server()
    server.publish(pool(devices(2)))
    (name,) = server.slices
    server.slices[f"{name}x"] = msgspec.structs.replace(
        server.slices[name], metadata=ObjectMeta(name=f"{name}x", uid="other")
    )
    writes = server.publish(pool(devices(2)))
    assert [each.metadata.name for each in writes.deletes] == [f"{name}x"]
    assert list(server.slices) == [name]


def test_the_time_of_a_taint_stays_when_something_else_changes() -> None:
    server = Server()
    server.publish(pool(devices(1, taints=(TAINT,))))
    writes = server.publish(pool(devices(2, taints=(TAINT,))))
    (update,) = writes.updates
    assert [taint.time_added for device in update.spec.devices or () for taint in device.taints] == [
        "2026-01-01T00:00:00Z",
        None,
    ]


def test_what_the_server_drops_is_not_written_again_and_again() -> None:
    server = Server()
    wanted = pool(devices(300, allow_multiple_allocations=True))
    writes = server.publish(wanted)
    accepted = {}
    for (name, slice_), sent in zip(sorted(server.slices.items()), writes.creates, strict=True):
        bare = tuple(
            msgspec.structs.replace(each, allow_multiple_allocations=None) for each in slice_.spec.devices or ()
        )
        stored = msgspec.structs.replace(slice_.spec, devices=bare)
        server.slices[name] = msgspec.structs.replace(slice_, spec=stored)
        accepted[name] = (sent.spec, stored)
    existing = list(server.slices.values())
    assert plan_writes(DRIVER, wanted, existing, OWNER, accepted).is_empty
    assert not plan_writes(DRIVER, wanted, existing, OWNER).is_empty


def test_a_pool_that_is_gone_is_removed() -> None:
    server = Server()
    server.publish(pool(devices(300)))
    assert len(plan_removal(list(server.slices.values())).deletes) == 3


def test_problems_name_the_device_and_the_rule() -> None:
    (problem,) = check_pools(DRIVER, [pool((Device(name="GPU_0"),))])
    assert problem.startswith(
        "driver 'gpu.example.com', pool 'n1': device 'GPU_0': spec.devices[0].name: Invalid value"
    )


def test_a_device_named_twice_in_different_slices_is_a_problem() -> None:
    problems = check_pools(DRIVER, [pool((*devices(200), Device(name="gpu-0")))])
    assert problems == ("driver 'gpu.example.com', pool 'n1': device 'gpu-0' named twice",)


def test_unknown_counters_are_problems() -> None:
    sets = (CounterSet(name="set", counters={"memory": ONE}),)
    consumes = (
        DeviceCounterConsumption(counter_set="set", counters={"slices": ONE}),
        DeviceCounterConsumption(counter_set="other", counters={"memory": ONE}),
    )
    problems = check_pools(DRIVER, [pool(devices(1, consumes_counters=consumes), counter_sets=sets)])
    assert [problem.partition("device ")[2] for problem in problems] == [
        "'gpu-0': counter set 'set' has no counter 'slices'",
        "'gpu-0': counter set 'other' is not in the pool",
    ]


def test_the_number_of_problems_is_bounded() -> None:
    assert len(check_pools(DRIVER, [pool(tuple(Device(name=f"X{number}") for number in range(500)))])) == 20


_DEVICE = st.builds(
    lambda number, tainted, model: Device(
        name=f"gpu-{number}",
        taints=(TAINT,) if tainted else (),
        attributes={"model": DeviceAttribute(string=model)},
    ),
    st.integers(0, 400),
    st.booleans(),
    st.sampled_from(["a", "b"]),
)
_DEVICES = st.lists(_DEVICE, max_size=200, unique_by=lambda device: device.name).map(tuple)


@pytest.mark.slow
@given(st.lists(_DEVICES, min_size=1, max_size=4))
def test_any_change_ends_in_complete_legal_pools_and_then_in_nothing_to_do(steps: list[tuple[Device, ...]]) -> None:
    server = Server()
    for step in steps:
        server.publish(pool(step))
        assert server.published() == [device.name for device in step]
        assert len(server.generations()) == 1
        assert {slice_.spec.pool.resource_slice_count for slice_ in server.slices.values()} == {len(server.slices)}
        assert server.publish(pool(step)).is_empty
    for slice_ in server.slices.values():
        assert check_object(encode(slice_), gates=ALL_GATES) == ()
