"""Claims are prepared before pods start and given back when they have ended, whatever happens in between (scenarios 13, 14, 16,
17 and 70 to 87 as far as they need no containers)."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.core.features import ALL_GATES
from allot.core.model.pods_v1 import decode_runnable
from allot.node.devices import PrepareFailed
from allot.node.dra.claim_preparer import ClaimPreparer
from allot.wire import dra_v1_pb2
from controllers.cluster import by_name, from_template
from controllers.cluster import pod as pod_object
from node.dra.misbehaviour import HANG_TEXT, MISBEHAVIOURS, hang
from node.dra.node import NODE, QUICK, Node, cdi_devices, has_records, node, registered
from waiting import until

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"


async def refused(preparer: ClaimPreparer, pod: Any) -> str:
    """Why a pod does not get its claims."""
    with pytest.raises(PrepareFailed) as caught:
        await preparer.prepare(decode_runnable(pod))
    return str(caught.value)


async def kept(preparer: ClaimPreparer, pod: Any) -> str:
    """Why the claims of a pod are not given back."""
    with pytest.raises(PrepareFailed) as caught:
        await preparer.unprepare(decode_runnable(pod))
    return str(caught.value)


# --- what drivers are asked ---


async def test_a_claim_is_prepared_once_and_given_back_once(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        uid = await here.uid_of("a")
        await preparer.prepare(decode_runnable(pod))
        await preparer.prepare(decode_runnable(pod))
        assert driver.asked(PREPARE) == [(uid,)]
        assert cdi_devices(preparer, pod, "c") == (f"gpu.example.com/claim={uid}-0",)
        await preparer.unprepare(decode_runnable(pod))
        await preparer.unprepare(decode_runnable(pod))
        assert driver.asked(UNPREPARE) == [(uid,)]
        assert here.state() == []
        assert not has_records(preparer, pod)


async def test_a_pod_without_claims_needs_no_driver_and_leaves_nothing(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        pod = await here.pod("p")
        await preparer.prepare(decode_runnable(pod))
        assert cdi_devices(preparer, pod, "c") == ()
        await preparer.unprepare(decode_runnable(pod))
        assert not preparer.records


@pytest.mark.parametrize("versions", [("v1.DRAPlugin",), ("v1beta1.DRAPlugin",), ("v1.DRAPlugin", "v1beta1.DRAPlugin")])
async def test_each_driver_is_called_once_with_all_claims(tmp_path: Path, versions: Sequence[str]) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        drivers = [await here.driver(name, versions=versions) for name in ("one.example.com", "two.example.com")]
        names = [driver.name for driver in drivers]
        await registered(preparer, *names)
        pod = await here.pod("p", "a", "b", drivers=names)
        uids = {await here.uid_of(name) for name in ("a", "b")}
        await preparer.prepare(decode_runnable(pod))
        await preparer.unprepare(decode_runnable(pod))
        for driver in drivers:
            assert [(version, operation, set(asked)) for version, operation, asked in driver.calls] == [
                (versions[0], PREPARE, uids),
                (versions[0], UNPREPARE, uids),
            ]


async def test_a_claim_that_is_prepared_is_not_prepared_again_for_another_pod(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        first = await here.pod("first", "shared")
        await preparer.prepare(decode_runnable(first))
        second = await here.pod("second", "shared", "own")
        await preparer.prepare(decode_runnable(second))
        shared, own = await here.uid_of("shared"), await here.uid_of("own")
        assert driver.asked(PREPARE) == [(shared,), (own,)]
        # Only who used it last gives it back.
        await preparer.unprepare(decode_runnable(first))
        assert driver.asked(UNPREPARE) == []
        await preparer.unprepare(decode_runnable(second))
        assert sorted(driver.asked(UNPREPARE)[0]) == sorted((shared, own))
        assert here.state() == []


async def test_a_claim_is_prepared_though_no_container_uses_it(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        pod = {**pod, "spec": {**pod["spec"], "containers": [{"name": "c", "image": "x"}]}}
        await preparer.prepare(decode_runnable(pod))
        assert len(driver.asked(PREPARE)) == 1
        assert cdi_devices(preparer, pod, "c") == ()


async def test_containers_get_the_devices_of_the_requests_that_they_name(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        uid = await here.uid_of("a")
        driver.devices[uid] = [
            {"request_names": ["one"], "device_name": "gpu-0"},
            {"request_names": ["two"], "device_name": "gpu-1", "share_id": "share"},
            {"request_names": [], "device_name": "gpu-2"},
            {"request_names": ["three"], "device_name": "gpu-3", "cdi_device_ids": []},
        ]
        claims = {"one": [{"name": "a", "request": "one"}], "all": [{"name": "a"}], "twice": [{"name": "a"}] * 2}
        claims |= {"none": [], "sub": [{"name": "a", "request": "two/sub"}]}
        containers = [{"name": name, "image": "x", "resources": {"claims": used}} for name, used in claims.items()]
        pod = {**pod, "spec": {**pod["spec"], "containers": containers}}
        await preparer.prepare(decode_runnable(pod))
        numbers = {name: [id_.rpartition("-")[2] for id_ in cdi_devices(preparer, pod, name)] for name in (*claims,)}
        assert numbers == {
            "one": ["0", "2"],
            "all": ["0", "1", "2"],
            "twice": ["0", "1", "2"],
            "none": [],
            "sub": ["2"],
        }
        devices = here.state()[0]["DriverState"]["gpu.example.com"]["Devices"]
        assert [device["ShareID"] for device in devices] == [None, "share", None, None]


async def test_extended_resources_are_served_by_their_own_claim(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "extended")
        uid = await here.uid_of("extended")
        driver.devices[uid] = [
            {"request_names": [f"container-{number}-request-0"], "device_name": f"gpu-{number}"} for number in (0, 1)
        ]
        asks = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
        zero = {"requests": {"example.com/gpu": "0"}}
        pod = {
            **pod,
            "spec": {
                "containers": [
                    {"name": "first", "image": "x", "resources": asks},
                    {"name": "second", "image": "x", "resources": asks},
                    {"name": "zero", "image": "x", "resources": zero},
                ]
            },
            "status": {
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "extended",
                    "requestMappings": [
                        {
                            "containerName": name,
                            "resourceName": "example.com/gpu",
                            "requestName": f"container-{number}-request-0",
                        }
                        for number, name in enumerate(("first", "second", "zero"))
                    ],
                }
            },
        }
        await preparer.prepare(decode_runnable(pod))
        assert [cdi_devices(preparer, pod, name) for name in ("first", "second", "zero")] == [
            (f"gpu.example.com/claim={uid}-0",),
            (f"gpu.example.com/claim={uid}-1",),
            (),
        ]
        await preparer.unprepare(decode_runnable(pod))
        assert driver.prepared == set()


# --- checks before anything is recorded ---


async def test_a_pod_that_fails_a_check_is_told_why_and_leaves_nothing(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        await here.driver()
        await registered(preparer)
        prefix = "prepare dynamic resources: "
        pod = await here.pod("waits", "a")
        made = {**pod, "spec": {**pod["spec"], "resourceClaims": [from_template("a", "t")]}}
        assert await refused(preparer, made) == prefix + 'pod "default/waits": ResourceClaim not created yet'
        statuses = {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "a"}]}
        text = "ResourceClaim default/a was not created for Pod default/waits (Pod is not owner)"
        assert await refused(preparer, {**made, "status": statuses}) == prefix + text

        gone = {**pod, "spec": {**pod["spec"], "resourceClaims": [by_name("a", "nothing")]}}
        assert (await refused(preparer, gone)).startswith(prefix + "fetch ResourceClaim nothing: ")

        other = await here.pod("other", "b", reserve=False)
        uid = await here.uid_of("b")
        text = f"pod other ({other['metadata']['uid']}) is not allowed to use ResourceClaim b ({uid})"
        assert await refused(preparer, other) == prefix + text

        found = await here.cluster.get("resourceclaims", "a")
        assert found is not None
        stranger = await here.pod("stranger", "c", drivers=["absent.example.com"])
        assert await refused(preparer, stranger) == prefix + "DRA driver absent.example.com is not registered"
        assert not preparer.records
        assert not (here.root / "dra_manager_state").exists()
        await preparer.unprepare(decode_runnable(stranger))


async def test_an_entry_that_needs_no_claim_is_left_out(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        pod = pod_object("p", claims=[from_template("a", "t")], node=NODE)
        pod["metadata"]["uid"] = "uid"
        pod["status"] = {"resourceClaimStatuses": [{"name": "a"}]}
        await preparer.prepare(decode_runnable(pod))
        assert cdi_devices(preparer, pod, "c") == ()


async def test_a_claim_with_the_name_of_one_that_is_still_prepared_has_to_wait(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        old = await here.uid_of("a")
        await preparer.prepare(decode_runnable(pod))
        driver.around = _fail("not yet")
        await here.cluster.of("resourceclaims").update_status(
            {**(await here.cluster.get("resourceclaims", "a") or {}), "status": {}}
        )
        await here.cluster.of("pods").delete("p", "default", grace_period_seconds=0)
        await here.cluster.of("resourceclaims").delete("a", "default")
        here.active = set()
        await preparer.reconcile()
        successor = await here.pod("q", "a")
        assert (
            f"old ResourceClaim with same name a and different UID {old} still exists (previous pod force-deleted?!)"
            in await refused(preparer, successor)
        )
        driver.around = None
        await preparer.reconcile()
        await preparer.prepare(decode_runnable(successor))
        assert driver.prepared == {await here.uid_of("a")}


# --- drivers that fail ---


def _fail(text: str, *, times: int | None = None) -> Any:
    """Answers of a driver that fails for each claim, always or so often."""
    left = [times]

    async def around(operation: str, uids: Sequence[str], answer: Callable[[], Any]) -> Any:
        if left[0] is not None:
            if not left[0]:
                return answer()
            left[0] -= 1
        if operation == PREPARE:
            response = dra_v1_pb2.NodePrepareResourceResponse(error=text)
            return dra_v1_pb2.NodePrepareResourcesResponse(claims=dict.fromkeys(uids, response))
        return dra_v1_pb2.NodeUnprepareResourcesResponse(
            claims=dict.fromkeys(uids, dra_v1_pb2.NodeUnprepareResourceResponse(error=text))
        )

    return around


async def test_a_driver_that_fails_is_asked_again_by_the_next_try(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        driver.around = _fail("no power", times=1)
        text = "prepare dynamic resources: NodePrepareResources failed for ResourceClaim a: no power"
        assert await refused(preparer, pod) == text
        await preparer.prepare(decode_runnable(pod))
        driver.around = _fail("in use", times=1)
        text = "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim a: in use"
        assert await kept(preparer, pod) == text
        assert has_records(preparer, pod)
        # Nobody gets a claim that is on its way out.
        second = await here.pod("second", "a")
        assert await refused(preparer, second) == "prepare dynamic resources: ResourceClaim a is being unprepared"
        await preparer.unprepare(decode_runnable(pod))
        await preparer.prepare(decode_runnable(second))


async def test_a_failed_prepare_is_undone_when_the_pod_ends(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        drivers = [await here.driver(name) for name in ("one.example.com", "two.example.com")]
        await registered(preparer, "one.example.com", "two.example.com")
        drivers[1].around = _fail("no", times=1)
        pod = await here.pod("p", "a", drivers=["one.example.com", "two.example.com"])
        assert "failed for ResourceClaim a: no" in await refused(preparer, pod)
        await preparer.unprepare(decode_runnable(pod))
        # Also who never prepared it is asked; it has to bear that.
        assert [len(driver.asked(UNPREPARE)) for driver in drivers] == [1, 1]
        assert drivers[0].prepared == set()


async def test_one_of_two_drivers_that_fails_does_not_make_the_other_forget(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        drivers = [await here.driver(name) for name in ("one.example.com", "two.example.com")]
        await registered(preparer, "one.example.com", "two.example.com")
        drivers[1].around = _fail("no", times=1)
        pod = await here.pod("p", "a", drivers=["one.example.com", "two.example.com"])
        await refused(preparer, pod)
        await preparer.prepare(decode_runnable(pod))
        uid = await here.uid_of("a")
        assert cdi_devices(preparer, pod, "c") == (f"one.example.com/claim={uid}-0", f"two.example.com/claim={uid}-0")
        drivers[0].around = _fail("no", times=1)
        await kept(preparer, pod)
        await preparer.unprepare(decode_runnable(pod))
        assert here.state() == []


@pytest.mark.parametrize(
    ("around", "text"),
    [*MISBEHAVIOURS, pytest.param(hang, HANG_TEXT, marks=pytest.mark.slow)],
)
async def test_a_driver_that_misbehaves_fails_the_pod_and_nothing_else(tmp_path: Path, around: Any, text: str) -> None:
    periods = msgspec.structs.replace(QUICK, call_s=0.1 if around is hang else 5.0)
    async with node(tmp_path) as here, here.running(periods) as preparer:
        driver = await here.driver()
        good = await here.driver("good.example.com")
        await registered(preparer, driver.name, good.name)
        pod = await here.pod("p", "a")
        neighbour = await here.pod("q", "b", drivers=[good.name])
        driver.around = around
        assert f"prepare dynamic resources: {PREPARE}{text}" in await refused(preparer, pod)
        await preparer.prepare(decode_runnable(neighbour))
        driver.around = None
        await preparer.prepare(decode_runnable(pod))
        driver.around = around
        assert f"unprepare dynamic resources: {UNPREPARE}{text}" in await kept(preparer, pod)
        driver.around = None
        await preparer.unprepare(decode_runnable(pod))
        assert [state["ClaimName"] for state in here.state()] == ["b"]


async def test_a_service_that_goes_is_noticed_at_once_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        await driver.stop_service()
        await until(lambda: not preparer.plugins.is_usable(driver.name))
        assert "NodeUnprepareResources: rpc error: code = Unavailable" in await kept(preparer, pod)
        await driver.start_service()
        await registered(preparer)
        await preparer.unprepare(decode_runnable(pod))
        assert driver.prepared == set()


async def test_claims_of_a_driver_that_is_gone_are_kept_until_it_is_back(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        await driver.stop()
        await until(lambda: not preparer.plugins.drivers())
        assert await kept(preparer, pod) == "unprepare dynamic resources: DRA driver gpu.example.com is not registered"
        await driver.start()
        await registered(preparer)
        await preparer.unprepare(decode_runnable(pod))


async def test_an_agent_that_cannot_write_says_so_and_goes_on_later(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        (here.root / "dra_manager_state.new").mkdir()
        assert "checkpoint ResourceClaim cache: " in await refused(preparer, pod)
        assert driver.calls == []
        (here.root / "dra_manager_state.new").rmdir()
        await preparer.prepare(decode_runnable(pod))
        assert len(here.state()) == 1


# --- pods that are gone without a word ---


async def test_what_a_force_deleted_pod_left_is_given_back(tmp_path: Path) -> None:
    periods = msgspec.structs.replace(QUICK, reconcile_s=0.02)
    async with node(tmp_path) as here, here.running(periods) as preparer:
        driver = await here.driver()
        await registered(preparer)
        driver.around = _fail("busy", times=2)
        pod = await here.pod("p", "a")
        for _ in range(2):
            await refused(preparer, pod)
        await preparer.prepare(decode_runnable(pod))
        driver.around = _fail("busy", times=2)
        here.active = None
        await here.looked(3)
        # As long as it is not known which pods there are, nothing is taken from any.
        assert driver.asked(UNPREPARE) == []
        here.active = set()
        await until(lambda: not preparer.records)
        assert len(driver.asked(UNPREPARE)) == 3
        await until(lambda: here.state() == [])


async def test_what_a_pod_left_is_given_back_as_soon_as_its_driver_is_there(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        async with here.running() as preparer:
            await registered(preparer)
            await preparer.prepare(decode_runnable(await here.pod("p", "a")))
        await driver.stop()
        here.active = None
        async with here.running() as preparer:
            await here.looked(2)
            here.active = set()
            await here.looked(2)
            assert preparer.records
            await driver.start()
            # Long before the period is over.
            await until(lambda: not preparer.records)
        assert driver.prepared == set()


async def test_pods_that_are_there_keep_their_share(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        first, second = await here.pod("first", "a"), await here.pod("second", "a")
        for pod in (first, second):
            await preparer.prepare(decode_runnable(pod))
        here.active = {second["metadata"]["uid"]}
        await preparer.reconcile()
        assert driver.asked(UNPREPARE) == []
        assert list(here.state()[0]["PodUIDs"]) == [second["metadata"]["uid"]]


async def test_a_pod_is_given_back_once_however_many_ask_for_it(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")

        async def slow(_: str, __: Sequence[str], answer: Callable[[], Any]) -> Any:
            await asyncio.sleep(0.02)
            return answer()

        driver.around = slow
        here.active = set()
        await asyncio.gather(
            preparer.prepare(decode_runnable(pod)),
            preparer.unprepare(decode_runnable(pod)),
            preparer.reconcile(),
            preparer.reconcile(),
            preparer.unprepare(decode_runnable(pod)),
        )
        assert [operation for _, operation, _ in driver.calls] == [PREPARE, UNPREPARE]
        assert here.state() == []
        assert not preparer._locks


# --- an agent that is killed ---


async def _begin(here: Node, run: Callable[[ClaimPreparer], Any], asked: asyncio.Event) -> None:
    """An agent that is killed while a driver works for it."""
    async with here.running() as preparer:
        await registered(preparer)
        task = asyncio.ensure_future(run(preparer))
        await asked.wait()
        task.cancel()
        await asyncio.wait((task,))


def _block(asked: asyncio.Event) -> Any:
    async def around(_: str, __: Sequence[str], answer: Callable[[], Any]) -> Any:
        made = answer()
        asked.set()
        await asyncio.sleep(0.05)
        return made

    return around


async def test_killed_while_a_driver_prepares(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        pod = await here.pod("p", "a")
        asked = asyncio.Event()
        driver.around = _block(asked)
        await _begin(here, lambda preparer: preparer.prepare(decode_runnable(pod)), asked)
        assert here.state()[0]["DriverState"] == {"gpu.example.com": {"Devices": None}}
        driver.around = None
        async with here.running() as preparer:
            await registered(preparer)
            await preparer.prepare(decode_runnable(pod))
            assert len(driver.asked(PREPARE)) == 2
            assert len(cdi_devices(preparer, pod, "c")) == 1
            await preparer.unprepare(decode_runnable(pod))
        assert driver.prepared == set()


async def test_killed_while_a_driver_prepares_for_a_pod_that_is_then_deleted(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        pod = await here.pod("p", "a")
        asked = asyncio.Event()
        driver.around = _block(asked)
        await _begin(here, lambda preparer: preparer.prepare(decode_runnable(pod)), asked)
        driver.around = None
        here.active = set()
        async with here.running(msgspec.structs.replace(QUICK, reconcile_s=0.02)) as preparer:
            await until(lambda: not preparer.records)
            await until(lambda: here.state() == [])
        assert len(driver.asked(PREPARE)) == 1
        assert driver.prepared == set()


async def test_killed_after_the_claim_was_prepared(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        async with here.running() as preparer:
            await registered(preparer)
            pod = await here.pod("p", "a")
            await preparer.prepare(decode_runnable(pod))
        preparer = here.preparer()
        # Containers of the pod can be started again without a driver.
        assert cdi_devices(preparer, pod, "c") == (f"gpu.example.com/claim={await here.uid_of('a')}-0",)
        async with here.running() as preparer:
            await registered(preparer)
            second = await here.pod("second", "a")
            await preparer.prepare(decode_runnable(second))
            # Whether it is still prepared is not known, so its driver is asked again.
            assert len(driver.asked(PREPARE)) == 2
            await preparer.unprepare(decode_runnable(pod))
            assert driver.asked(UNPREPARE) == []
            await preparer.unprepare(decode_runnable(second))
        assert driver.prepared == set()


async def test_killed_while_a_driver_gives_back(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        async with here.running() as preparer:
            await registered(preparer)
            pod = await here.pod("p", "a")
            await preparer.prepare(decode_runnable(pod))
        asked = asyncio.Event()
        driver.around = _block(asked)
        await _begin(here, lambda preparer: preparer.unprepare(decode_runnable(pod)), asked)
        driver.around = None
        assert len(here.state()) == 1
        async with here.running() as preparer:
            await registered(preparer)
            await preparer.unprepare(decode_runnable(pod))
        assert len(driver.asked(UNPREPARE)) == 2
        assert here.state() == []


async def test_killed_between_giving_back_and_forgetting(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        async with here.running() as preparer:
            await registered(preparer)
            pod = await here.pod("p", "a")
            await preparer.prepare(decode_runnable(pod))
            shutil.copy(here.root / "dra_manager_state", here.root / "before")
            await preparer.unprepare(decode_runnable(pod))
        (here.root / "before").replace(here.root / "dra_manager_state")
        here.active = set()
        async with here.running(msgspec.structs.replace(QUICK, reconcile_s=0.02)) as preparer:
            await until(lambda: not preparer.records)
        assert len(driver.asked(UNPREPARE)) == 2


async def test_failures_go_on_over_a_restart(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        pod = await here.pod("p", "a")
        driver.around = _fail("no", times=1)
        async with here.running() as preparer:
            await registered(preparer)
            await refused(preparer, pod)
        async with here.running() as preparer:
            await registered(preparer)
            await preparer.prepare(decode_runnable(pod))
            driver.around = _fail("no", times=1)
            await kept(preparer, pod)
        async with here.running() as preparer:
            await registered(preparer)
            await preparer.unprepare(decode_runnable(pod))
        assert (driver.prepared, here.state()) == (set(), [])


# --- operations that are not needed ---


@pytest.mark.parametrize(
    ("skipped", "operations"),
    [(["*"], []), ([UNPREPARE], [PREPARE]), ([PREPARE, UNPREPARE], [])],
)
async def test_operations_that_devices_do_not_need_are_left_out(
    tmp_path: Path, skipped: list[str], operations: list[str]
) -> None:
    async with node(tmp_path, ALL_GATES) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a", results=[{"driver": driver.name, "skipNodeOperations": skipped}])
        await preparer.prepare(decode_runnable(pod))
        await preparer.unprepare(decode_runnable(pod))
        assert [operation for _, operation, _ in driver.calls] == operations
        text = here.text()
        assert ('dra_node_prepare_skips_total{driver_name="gpu.example.com"} 1.0' in text) == (
            PREPARE not in operations
        )
        assert ('dra_node_unprepare_skips_total{driver_name="gpu.example.com"} 1.0' in text) == (
            UNPREPARE not in operations
        )


async def test_an_operation_is_left_out_only_if_no_device_of_the_driver_needs_it(tmp_path: Path) -> None:
    async with node(tmp_path, ALL_GATES) as here, here.running() as preparer:
        results = [{"driver": "gpu.example.com", "skipNodeOperations": each} for each in (["*"], [UNPREPARE])]
        pod = await here.pod("p", "a", results=results)
        assert "is not registered" in await refused(preparer, pod)
        every = [{"driver": "gpu.example.com", "skipNodeOperations": ["*"]}]
        pod = await here.pod("q", "b", results=every)
        await preparer.prepare(decode_runnable(pod))
        assert here.state()[0]["DriverState"]["gpu.example.com"]["skipNodeOperations"] == ["*"]
        await preparer.unprepare(decode_runnable(pod))


# --- metrics ---


async def test_metrics_have_the_kubelets_names(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        names = ("one.example.com", "two.example.com")
        for name in names:
            await here.driver(name)
        await registered(preparer, *names)
        pod = await here.pod("p", "a", drivers=names)
        await preparer.prepare(decode_runnable(pod))
        text = here.text()
        for name in ("<any>", *names):
            assert f'dra_resource_claims_in_use{{driver_name="{name}"}} 1.0' in text
        assert 'dra_operations_duration_seconds_count{is_error="false",operation_name="PrepareResources"} 1.0' in text
        method = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
        labels = f'driver_name="one.example.com",grpc_status_code="OK",method_name="{method}"'
        assert f"dra_grpc_operations_duration_seconds_count{{{labels}}} 1.0" in text
        await preparer.unprepare(decode_runnable(pod))
        lines = [line for line in here.text().splitlines() if line.startswith("dra_resource_claims_in_use{")]
        assert lines == ['dra_resource_claims_in_use{driver_name="<any>"} 0.0']
