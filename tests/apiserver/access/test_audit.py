"""The audit log: what is written, and what happens when it is full."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.apiserver.access.audit import AuditLog, AuditRecord, Level
from allot.apiserver.access.secret_files import SecretFileError
from allot.core.access.attributes import Attributes, Decision, User
from allot.process.clock import ManualClock
from waiting import WAIT_S

ALICE = User("alice", groups=("dev",))


def record(resource: str = "pods", *, name: str = "p", **more: Any) -> AuditRecord:
    attributes = Attributes(
        user=ALICE,
        verb="create",
        version="v1",
        resource=resource,
        namespace="default",
        name=name,
        subresource=more.pop("subresource", ""),
    )
    values: dict[str, Any] = {
        "audit_id": "id-1",
        "attributes": attributes,
        "uri": "/api/v1/namespaces/default/pods",
        "code": 201,
        "received": "2026-11-15T00:00:00.000000Z",
        "decision": Decision(True, "because"),
    }
    return AuditRecord(**(values | more))


def lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def test_an_event_says_who_did_what_with_which_outcome(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock)
    log.record(record(source_ips=("127.0.0.1",), user_agent="kubectl", body={"kind": "Pod"}))
    log.close()
    (event,) = lines(log.path)
    assert event == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "id-1",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/default/pods",
        "verb": "create",
        "user": {"username": "alice", "groups": ["dev"]},
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kubectl",
        "objectRef": {"resource": "pods", "namespace": "default", "name": "p", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestReceivedTimestamp": "2026-11-15T00:00:00.000000Z",
        "stageTimestamp": clock.now_micro(),
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "because"},
    }
    assert log.path.stat().st_mode & 0o777 == 0o600


async def test_what_is_no_text_is_written_all_the_same(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock)
    log.record(record(name="a\udcff", user_agent="b\udcfe", uri="/\udcfd", message="é\udcfc"))
    log.close()
    (event,) = lines(log.path)
    assert (event["objectRef"]["name"], event["userAgent"], event["requestURI"]) == ("a?", "b?", "/?")


async def test_refusals_and_impersonation_are_told(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock)
    log.record(record(code=403, reason="Forbidden", message="no", decision=Decision(False), impersonator=User("root")))
    log.close()
    (event,) = lines(log.path)
    assert event["user"] == {"username": "root"}
    assert event["impersonatedUser"]["username"] == "alice"
    assert event["responseStatus"] == {
        "metadata": {},
        "code": 403,
        "status": "Failure",
        "message": "no",
        "reason": "Forbidden",
    }
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


@pytest.mark.parametrize(
    ("resource", "subresource", "written"),
    [("pods", "", True), ("secrets", "", False), ("serviceaccounts", "token", False), ("configmaps", "", False)],
)
async def test_bodies_are_written_at_level_request_but_never_secrets(
    tmp_path: Path, clock: ManualClock, resource: str, subresource: str, written: bool
) -> None:
    log = AuditLog(tmp_path / "audit.log", clock, Level.REQUEST)
    log.record(record(resource, subresource=subresource, body={"data": "hidden"}))
    log.close()
    (event,) = lines(log.path)
    assert ("requestObject" in event) is written
    assert (b"hidden" in log.path.read_bytes()) is written


async def test_level_none_writes_nothing(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock, Level.NONE)
    log.record(record())
    log.close()
    assert lines(log.path) == []


async def test_what_does_not_fit_is_counted_and_never_waited_for(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock, queue_max=3)
    for number in range(10):
        log.record(record(name=str(number)))
    assert log.dropped == 7
    log.close()
    assert [event["objectRef"]["name"] for event in lines(log.path)] == ["0", "1", "2"]


async def test_full_files_are_put_aside_and_the_oldest_go(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock, bytes_max=2000, files_kept=2)
    for number in range(20):
        log.record(record(name=str(number)))
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    kept = [
        event["objectRef"]["name"]
        for name in ("audit.log.2", "audit.log.1", "audit.log")
        for event in lines(tmp_path / name)
    ]
    assert kept == [str(number) for number in range(20 - len(kept), 20)]


async def test_events_are_written_while_running_and_the_rest_at_the_end(tmp_path: Path, clock: ManualClock) -> None:
    log = AuditLog(tmp_path / "audit.log", clock)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(log.run())
        log.record(record(name="first"))
        async with asyncio.timeout(WAIT_S):
            while not lines(log.path):
                await asyncio.sleep(0)
        log.record(record(name="second"))
        running.cancel()
    assert [event["objectRef"]["name"] for event in lines(log.path)] == ["first", "second"]


def test_a_log_that_cannot_be_written_is_an_error_at_start(tmp_path: Path, clock: ManualClock) -> None:
    with pytest.raises(SecretFileError, match="audit log"):
        AuditLog(tmp_path / "missing" / "audit.log", clock)


async def test_a_second_start_appends(tmp_path: Path, clock: ManualClock) -> None:
    for _ in range(2):
        log = AuditLog(tmp_path / "audit.log", clock)
        log.record(record())
        log.close()
    assert len(lines(tmp_path / "audit.log")) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
async def test_a_full_disk_loses_events_but_nothing_else(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    before = Path("/dev/full").stat().st_mode
    log = AuditLog(Path("/dev/full"), clock)
    log.record(record())
    log.close()
    assert Path("/dev/full").stat().st_mode == before
    assert log.dropped == 1
    assert "cannot be written" in caplog.text
