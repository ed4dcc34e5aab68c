"""What is said about refused pods, as far as no server is needed to see it."""

from __future__ import annotations

from typing import Any

from allot.client.api import Client
from allot.client.events import NOTE_BYTES_MAX
from allot.client.transport import Response
from allot.core.model.core_v1 import Pod, PodCondition, PodStatus
from allot.core.model.meta import ObjectMeta
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import GroupOutcome, Refusal
from allot.core.scheduling.status import Verdict
from allot.process.clock import ManualClock
from allot.scheduler.claim_writes import ClaimWrites
from allot.scheduler.reports import Reporter, text_of


class Recorder:
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def record(self, _pod: Any, _type: str, _reason: str, _action: str, note: str, related: Any = None) -> None:
        assert related is None
        self.notes.append(note)


def reporter(recorder: Recorder) -> Reporter:
    client = Client(None)  # type: ignore[arg-type]
    clock = ManualClock()
    return Reporter(client, ClaimWrites(client, Claims(), clock), clock, recorder)  # type: ignore[arg-type]


def refusal(
    message: str, explanation: str = "", *, pod: Pod | None = None, verdict: Verdict = Verdict.UNSCHEDULABLE
) -> Refusal:
    return Refusal(
        pod=pod or Pod(metadata=ObjectMeta(name="p", namespace="ns")),
        verdict=verdict,
        message=message,
        explanation=explanation,
    )


def test_our_explanation_follows_the_text_of_kube_scheduler() -> None:
    assert text_of(refusal("0/1 nodes are available: 1 no.", "Because.")) == "0/1 nodes are available: 1 no. Because."
    assert text_of(refusal("0/1 nodes are available: 1 no.")) == "0/1 nodes are available: 1 no."


def test_long_notes_are_cut_to_what_an_event_may_hold() -> None:
    recorder = Recorder()
    reporter(recorder).event(refusal("ü" * 2000))
    (note,) = recorder.notes
    assert len(note.encode()) <= NOTE_BYTES_MAX
    assert note.endswith("ü ...")


def test_a_condition_that_says_it_already_is_not_written_again() -> None:
    said = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no")
    pod = Pod(metadata=ObjectMeta(name="p", namespace="ns"), status=PodStatus(conditions=(said,)))
    made = reporter(Recorder())
    assert not made.needs_writing(refusal("no", pod=pod))
    assert made.needs_writing(refusal("not now", pod=pod))
    assert made.needs_writing(refusal("no", pod=pod, verdict=Verdict.ERROR))
    assert made.needs_writing(refusal("no"))


class Groups:
    """An API server that takes every patch."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.patches: list[dict[str, Any]] = []

    async def request(
        self, _method: str, _path: str, _query: Any = None, body: Any = None, *_rest: Any, **_more: Any
    ) -> Response:
        self.patches.append(body)
        return Response(self.status, {}, {"metadata": {}, "message": "no"})


async def test_what_is_said_of_a_group_is_said_once_however_many_of_its_pods_are_decided_at_once() -> None:
    server, clock = Groups(), ManualClock()
    client = Client(server)  # type: ignore[arg-type]
    told = Reporter(client, ClaimWrites(client, Claims(), clock), clock, Recorder())  # type: ignore[arg-type]
    group = PodGroup(metadata=ObjectMeta(name="g", namespace="ns", uid="u"))
    scheduled = GroupOutcome(group=group, status="True", reason="Scheduled")
    for _ in range(3):
        await told.write_group(scheduled)
    assert len(server.patches) == 1
    await told.write_group(GroupOutcome(group=group, status="False", reason="Unschedulable", message="no room"))
    assert len(server.patches) == 2
    await told.write_group(scheduled)
    clock.advance(6.0)
    await told.write_group(scheduled)
    assert len(server.patches) == 4, "it is told again when the watch does not show it"
    server.status = 409
    clock.advance(6.0)
    await told.write_group(scheduled)
    await told.write_group(scheduled)
    assert len(server.patches) == 6, "what was not taken is told again"
