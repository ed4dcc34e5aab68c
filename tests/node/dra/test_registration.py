"""Drivers announce themselves by sockets: taken on, refused, replaced, forgotten (scenarios 65 to 69, 80, 92 and 93)."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.core.model.pods_v1 import decode_runnable
from allot.node.devices import PrepareFailed
from allot.node.dra.registration import (
    Failing,
    Registered,
    Steps,
    find_sockets,
    next_failure,
    plan_registrations,
)
from node.dra.node import QUICK, cdi_devices, has_records, node, registered
from node.dra.plugin import CountedSocket, DriverOnSockets
from waiting import until

PREPARE = "NodePrepareResources"


# --- decisions ---


def test_what_has_gone_or_was_made_anew_is_unregistered_first() -> None:
    actual = {path: Registered((1, 1, 1), "DRAPlugin", path, path) for path in ("gone", "same", "anew")}
    desired = {"same": (1, 1, 1), "anew": (1, 2, 2), "new": (1, 3, 3)}
    assert plan_registrations(desired, actual, {}, 0.0) == Steps(("anew", "gone"), ("anew", "new"))


def test_a_socket_that_failed_waits_unless_it_was_made_anew() -> None:
    failing = {"a": Failing((1, 1, 1), 0.5, 10.0, "no")}
    assert plan_registrations({"a": (1, 1, 1)}, {}, failing, 9.9).register == ()
    assert plan_registrations({"a": (1, 1, 1)}, {}, failing, 10.0).register == ("a",)
    assert plan_registrations({"a": (1, 1, 2)}, {}, failing, 9.9).register == ("a",)


def test_pauses_double_from_half_a_second_to_two_minutes_and_two_seconds() -> None:
    failure: Failing | None = None
    pauses = []
    for _ in range(10):
        failure = next_failure(failure, (1, 1, 1), "no", 0.0)
        pauses.append(failure.pause_s)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]
    assert next_failure(failure, (1, 1, 2), "no", 0.0).pause_s == 0.5


def test_only_sockets_that_are_not_hidden_count_also_in_folders() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "below" / "deeper").mkdir(parents=True)
        (folder / ".hidden").mkdir()
        (folder / "file.sock").touch()
        servers = []
        for path in ("a.sock", ".b.sock", "below/deeper/c.sock", ".hidden/d.sock"):
            server = socket.socket(socket.AF_UNIX)
            server.bind(str(folder / path))
            servers.append(server)
        assert sorted(find_sockets(folder)) == [str(folder / "a.sock"), str(folder / "below/deeper/c.sock")]
        assert find_sockets(folder / "absent") == {}
        for server in servers:
            server.close()


# --- sequences ---


async def test_a_driver_is_asked_who_it_is_and_told_that_it_is_registered(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        await until(lambda: driver.statuses)
        assert (driver.infos, driver.statuses) == (1, [(True, "")])
        assert preparer.plugins.choose(driver.name).service == "v1.DRAPlugin"


async def test_drivers_are_found_again_after_a_restart_of_the_agent(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        driver = await here.driver()
        for round_ in (1, 2):
            async with here.running() as preparer:
                await registered(preparer)
                await until(lambda round_=round_: driver.statuses == [(True, "")] * round_)


async def test_a_driver_that_restarts_is_registered_anew(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        await driver.stop()
        await until(lambda: not preparer.plugins.drivers())
        await driver.start()
        await registered(preparer)
        await until(lambda: len(driver.statuses) == 2)
        await preparer.unprepare(decode_runnable(pod))
        assert driver.prepared == set()


async def test_a_socket_that_is_replaced_at_once_is_registered_anew(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        first = await here.driver()
        await registered(preparer)
        await first.stop_registration()
        await first.start_registration()
        await until(lambda: first.statuses == [(True, ""), (True, "")])
        assert len(preparer.plugins.instances()) == 1


async def test_a_driver_whose_info_fails_is_asked_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root)
        driver.info_failures = 2
        here.drivers.append(await driver.start())
        await registered(preparer)
        await until(lambda: driver.statuses == [(True, "")])
        assert driver.infos == 3
        await until(lambda: not preparer.registry.failing)


async def test_a_driver_that_cannot_be_told_is_forgotten_and_asked_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root)
        driver.notify_failures = 1
        here.drivers.append(await driver.start())
        await until(lambda: len(driver.statuses) == 2)
        await registered(preparer)
        assert driver.statuses == [(True, ""), (True, "")]
        assert len(preparer.plugins.instances()) == 1


@pytest.mark.parametrize("common_socket", [False, True])
async def test_registration_may_come_before_the_service(tmp_path: Path, common_socket: bool) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root, common_socket=common_socket)
        here.drivers.append(driver)
        await driver.start_registration()
        await until(lambda: driver.statuses == [(True, "")])
        pod = await here.pod("p", "a")
        if not common_socket:
            with pytest.raises(PrepareFailed, match="code = Unavailable"):
                await preparer.prepare(decode_runnable(pod))
            await driver.start_service()
        await registered(preparer)
        await preparer.prepare(decode_runnable(pod))
        assert driver.prepared == {await here.uid_of("a")}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"type": "CSIPlugin"}, "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket "),
        ({"versions": ()}, "empty list of supported gRPC services (aka supported versions)"),
        (
            {"versions": ("1.0.0", "v1alpha4.Node")},
            'none of services supported by the plugin (["1.0.0" "v1alpha4.Node"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
        ({"name": "Not A Name"}, "expected a DNS subdomain"),
        ({"name": ""}, "expected a DNS subdomain"),
        ({"endpoint": "dra.sock"}, "socket 'dra.sock': expected an absolute path of at most 107 bytes"),
        ({"endpoint": "/x" * 60}, "expected an absolute path of at most 107 bytes"),
        ({"endpoint": "//host/dra.sock"}, "expected an absolute path of at most 107 bytes"),
    ],
)
async def test_a_plugin_that_cannot_be_used_is_told_why(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root)
        for name, value in change.items():
            setattr(driver, name, value)
        here.drivers.append(driver)
        await driver.start_registration()
        await until(lambda: len(driver.statuses) > 1)
        assert all(not is_registered and text in error for is_registered, error in driver.statuses)
        await until(lambda: preparer.registry.failing)
        assert not preparer.plugins.drivers()


async def test_the_plugins_own_order_of_versions_decides(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=("v1beta1.DRAPlugin", "v1.DRAPlugin"))
        await registered(preparer)
        await preparer.prepare(decode_runnable(await here.pod("p", "a")))
        assert [version for version, _, _ in driver.calls] == ["v1beta1.DRAPlugin"]


async def test_nobody_takes_the_place_of_an_instance(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        second = DriverOnSockets(here.root, instance="-2", endpoint=driver.endpoint)
        here.drivers.append(second)
        await second.start_registration()
        await until(lambda: len(second.statuses) > 1)
        text = f"endpoint {driver.endpoint} already registered for DRA driver plugin gpu.example.com"
        assert second.statuses[0] == (False, f"RegisterPlugin error -- plugin registration failed with err: {text}")
        # The first one is not disturbed, and the second takes over when it is gone.
        assert preparer.plugins.is_usable(driver.name)
        await driver.stop_registration()
        await until(lambda: (True, "") in second.statuses)


async def test_a_socket_where_nobody_listens_holds_up_nobody_else(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        stale = socket.socket(socket.AF_UNIX)
        (here.root / "plugins_registry").mkdir()
        stale.bind(str(here.root / "plugins_registry" / "a-reg.sock"))
        stale.close()
        async with here.running() as preparer:
            await here.driver()
            await registered(preparer)


async def test_a_plugin_that_answers_with_garbage_is_asked_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root)
        # Not UTF-8, which a name has to be.
        driver.raw_info = b"\x12\x02\xff\xfe"
        here.drivers.append(await driver.start())
        await until(lambda: driver.infos > 1)
        assert "failed to get plugin info using RPC GetInfo" in next(iter(preparer.registry.failing.values())).why
        driver.raw_info = None
        await registered(preparer)


async def test_names_of_sockets_may_have_any_letters(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(instance=" ü%20?#")
        await registered(preparer)
        await preparer.prepare(decode_runnable(await here.pod("p", "a")))
        assert len(driver.calls) == 1


@pytest.mark.slow
async def test_a_plugin_that_answers_late_is_asked_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root)
        driver.info_delay_s = 1.5
        here.drivers.append(await driver.start())
        await until(lambda: preparer.registry.failing)
        assert "context deadline exceeded" in next(iter(preparer.registry.failing.values())).why
        driver.info_delay_s = 0.0
        await registered(preparer)


# --- several instances ---


async def test_a_rolling_update_moves_calls_to_the_newer_instance(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        old = await here.driver(instance="-old")
        await registered(preparer)
        first, second, third = [await here.pod(name, name) for name in ("a", "b", "c")]
        await preparer.prepare(decode_runnable(first))
        new = await here.driver(instance="-new")
        await until(lambda: len(preparer.plugins.instances()) == 2)
        await until(lambda: all(each.is_connected for each in preparer.plugins.instances()))
        await preparer.prepare(decode_runnable(second))
        await old.stop()
        await until(lambda: len(preparer.plugins.instances()) == 1)
        await preparer.prepare(decode_runnable(third))
        await preparer.unprepare(decode_runnable(first))
        assert (len(old.calls), [operation for _, operation, _ in new.calls]) == (
            1,
            [PREPARE, PREPARE, "NodeUnprepareResources"],
        )


async def test_a_failed_update_leaves_calls_with_the_older_instance(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        old = await here.driver(instance="-old")
        await registered(preparer)
        new = await here.driver(instance="-new")
        await until(lambda: sum(each.is_connected for each in preparer.plugins.instances()) == 2)
        await new.stop_service()
        await until(lambda: sum(each.is_connected for each in preparer.plugins.instances()) == 1)
        await preparer.prepare(decode_runnable(await here.pod("p", "a")))
        assert (len(old.calls), len(new.calls)) == (1, 0)


async def test_an_instance_that_goes_may_finish_what_it_was_asked(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running(msgspec.structs.replace(QUICK, call_s=5.0)) as preparer:
        driver = await here.driver()
        await registered(preparer)
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: str, __: Any, answer: Any) -> Any:
            asked.set()
            await go_on.wait()
            return answer()

        driver.around = slow
        pod = await here.pod("p", "a")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(preparer.prepare(decode_runnable(pod)))
            await asked.wait()
            await driver.stop_registration()
            await until(lambda: not preparer.plugins.drivers())
            go_on.set()
        assert has_records(preparer, pod)
        assert len(cdi_devices(preparer, pod, "c")) == 1


async def test_an_instance_is_connected_to_once_for_everything(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = DriverOnSockets(here.root, versions=("v1.DRAPlugin", "v1.DRAResourceHealth"))
        here.drivers.append(driver)
        await driver.start_service()
        async with CountedSocket(driver) as counted:
            await driver.start_registration()
            await registered(preparer)
            await until(lambda: driver.health_streams)
            for name in ("first", "second"):
                pod = await here.pod(name, name)
                await preparer.prepare(decode_runnable(pod))
                await preparer.unprepare(decode_runnable(pod))
            assert (counted.connections, len(driver.calls)) == (1, 4)
            await driver.stop_registration()
            await until(lambda: not preparer.plugins.drivers())
