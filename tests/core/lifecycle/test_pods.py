"""What a node does next for a pod, and what it tells about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.lifecycle.pod_environment import BadEnvironment, PodFacts, environment, expand
from allot.core.lifecycle.pod_status import Facts, is_same, pod_status
from allot.core.lifecycle.pods import (
    EXITED,
    RUNNING,
    Backoff,
    MakeSandbox,
    Record,
    Seen,
    Start,
    Stop,
    Waiting,
    decide,
    ending,
    grace_of,
)
from allot.core.model.pods_v1 import RunnablePod, decode_runnable

NOW = 1_800_000_000.0


def pod(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any) -> RunnablePod:
    made = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u-1", "generation": 1},
        "spec": {"containers": list(containers) or [{"name": "main"}], "initContainers": init or [], **spec},
    }
    return decode_runnable(made)


def running(name: str, attempt: int = 0) -> Record:
    return Record(id=f"{name}-{attempt}", name=name, attempt=attempt, state=RUNNING, started_at=NOW - 1)


def ended(name: str, code: int = 0, attempt: int = 0, at: float = NOW) -> Record:
    return Record(
        id=f"{name}-{attempt}",
        name=name,
        attempt=attempt,
        state=EXITED,
        exit_code=code,
        started_at=at - 1,
        finished_at=at,
    )


def seen(*records: Record, sandbox: str = "s", **more: Any) -> Seen:
    found: dict[str, tuple[Record, ...]] = {}
    for record in sorted(records, key=lambda each: each.attempt, reverse=True):
        found[record.name] = (*found.get(record.name, ()), record)
    return Seen(sandbox=sandbox, sandbox_attempt=0 if sandbox else -1, records=found, **more)


def starts(found: RunnablePod, now: Seen, at: float = NOW) -> list[tuple[str, int]]:
    return [(step.name, step.attempt) for step in decide(found, now, at).steps if isinstance(step, Start)]


def test_a_new_pod_gets_a_sandbox_then_its_containers() -> None:
    two = pod({"name": "a"}, {"name": "b"})
    assert decide(two, Seen(), NOW).steps == (MakeSandbox(attempt=0),)
    assert starts(two, seen()) == [("a", 0), ("b", 0)]
    assert starts(two, seen(running("a"))) == [("b", 0)]


def test_a_probe_may_say_how_long_the_container_is_given_that_fails_it() -> None:
    found = pod(terminationGracePeriodSeconds=600)
    for graces, expected in (({}, 600.0), ({"main": 5.0}, 5.0)):
        steps = decide(found, seen(running("main"), failing={"main": "why"}, failing_graces=graces), NOW).steps
        assert steps == (Stop(id="main-0", name="main", grace_s=expected, message="why"),)


def test_messages_of_all_containers_together_have_a_length() -> None:
    two = pod({"name": "a"}, {"name": "b"}, restartPolicy="Never")
    long = msgspec.structs.replace(ended("a"), message="x" * 20_000)
    status = pod_status(two, seen(long, msgspec.structs.replace(ended("b"), message="y")), Facts(now=NOW))
    told = [each["state"]["terminated"]["message"] for each in status["containerStatuses"]]
    assert told == ["x" * 6 * 1024, "y"]


def test_init_containers_come_one_after_the_other_and_sidecars_stay() -> None:
    init = [{"name": "first"}, {"name": "side", "restartPolicy": "Always"}, {"name": "last"}]
    found = pod({"name": "main"}, init=init)
    assert starts(found, seen()) == [("first", 0)]
    assert starts(found, seen(running("first"))) == []
    assert starts(found, seen(ended("first"))) == [("side", 0)]
    assert starts(found, seen(ended("first"), running("side"))) == []
    started = frozenset(("side",))
    assert starts(found, seen(ended("first"), running("side"), started=started)) == [("last", 0)]
    done = (ended("first"), running("side"), ended("last"))
    assert starts(found, seen(*done, started=started)) == [("main", 0)]
    # A sidecar that ends is started again beside the others.
    crashed = (ended("first"), ended("side", 1), ended("last"), running("main"))
    assert starts(found, seen(*crashed)) == [("side", 1)]


@pytest.mark.parametrize(
    ("policy", "code", "restarts", "phase"),
    [
        ("Always", 0, True, "Running"),
        ("Always", 1, True, "Running"),
        ("OnFailure", 0, False, "Succeeded"),
        ("OnFailure", 1, True, "Running"),
        ("Never", 0, False, "Succeeded"),
        ("Never", 1, False, "Failed"),
    ],
)
def test_the_restart_policy_decides_what_follows_an_end(policy: str, code: int, restarts: bool, phase: str) -> None:
    found = pod(restartPolicy=policy)
    now = seen(ended("main", code))
    decision = decide(found, now, NOW)
    assert decision.ends is not restarts
    assert bool(decision.steps) is restarts
    final = not restarts
    assert pod_status(found, now, Facts(now=NOW, is_final=final))["phase"] == phase
    if final:
        # As long as devices are not given back, nobody is told that it is over.
        assert pod_status(found, now, Facts(now=NOW))["phase"] == "Running"


@pytest.mark.parametrize(
    ("operator", "code", "phase"),
    [("In", 42, "Running"), ("In", 1, "Failed"), ("NotIn", 42, "Failed"), ("NotIn", 1, "Running")],
)
def test_rules_restart_a_container_that_its_policy_would_leave(operator: str, code: int, phase: str) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}}]
    container = {"name": "first", "restartPolicy": "Never", "restartPolicyRules": rules}
    now = seen(ended("first", code))
    for found in (pod(container, restartPolicy="Never"), pod(init=[container], restartPolicy="Never")):
        decision = decide(found, now, NOW)
        assert decision.ends is (phase == "Failed")
        told = pod_status(found, now, Facts(now=NOW, is_final=decision.ends))["phase"]
        assert told == (phase if phase == "Failed" or not found.spec.init_containers else "Pending")


def test_back_off_doubles_from_ten_seconds_to_five_minutes_and_is_forgotten() -> None:
    found, delays, backoff, at = pod(), [], None, NOW
    for attempt in range(8):
        now = seen(ended("main", 1, attempt, at), backoffs={"main": backoff} if backoff else {})
        decision = decide(found, now, at)
        if backoff is not None:
            waiting = decision.waiting["main"]
            assert waiting.reason == "CrashLoopBackOff"
            assert not decision.steps
            assert decision.look_at == waiting.until
            delays.append(waiting.until - at)
            at = waiting.until
            decision = decide(found, now, at)
        step = decision.steps[0]
        assert isinstance(step, Start) and step.attempt == attempt + 1
        backoff = step.backoff
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    old = Backoff(delay_s=300.0, since=NOW - 601)
    assert starts(found, seen(ended("main", 1), backoffs={"main": old})) == [("main", 1)]
    text = decide(found, seen(ended("main", 1), backoffs={"main": Backoff(delay_s=80.0, since=NOW)}), NOW).waiting[
        "main"
    ]
    assert text.message == "back-off 1m20s restarting failed container=main pod=p_default(u-1)"


def test_a_start_that_failed_is_not_tried_again_at_once() -> None:
    why = Waiting(reason="CreateContainerConfigError", message='configmap "x" not found', until=NOW + 10)
    decision = decide(pod(), seen(waiting={"main": why}), NOW)
    assert (decision.steps, decision.waiting, decision.look_at) == ((), {"main": why}, NOW + 10)
    assert starts(pod(), seen(waiting={"main": why}), NOW + 10) == [("main", 0)]


def test_a_container_that_fails_its_probe_is_stopped_and_comes_back() -> None:
    found = pod(terminationGracePeriodSeconds=7)
    decision = decide(found, seen(running("main"), failing={"main": "failed liveness probe"}), NOW)
    assert decision.steps == (Stop(id="main-0", name="main", grace_s=7.0, message="failed liveness probe"),)


def test_what_ran_in_a_lost_sandbox_is_stopped_before_a_new_one_is_made() -> None:
    lost = seen(running("main"), sandbox="")
    assert [type(step) for step in decide(pod(), lost, NOW).steps] == [Stop]
    assert [type(step) for step in decide(pod(), seen(ended("main", 137), sandbox=""), NOW).steps] == [MakeSandbox]


def test_the_end_stops_containers_first_and_sidecars_from_the_last_to_the_first() -> None:
    init = [{"name": "s1", "restartPolicy": "Always"}, {"name": "s2", "restartPolicy": "Always"}]
    found = pod({"name": "a"}, {"name": "b"}, init=init)
    every = (running("s1"), running("s2"), running("a"), running("b"))
    assert [step.name for step in ending(found, seen(*every), 5.0)] == ["a", "b"]
    assert [step.name for step in ending(found, seen(*every[:2]), 5.0)] == ["s2"]
    assert [step.name for step in ending(found, seen(every[0]), 5.0)] == ["s1"]
    assert ending(found, seen(ended("a")), 5.0) == ()


def test_a_deadline_ends_a_pod() -> None:
    late = decode_runnable(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "main"}], "activeDeadlineSeconds": 5},
            "status": {"startTime": "2027-01-15T07:59:55Z"},
        }
    )
    assert decide(late, seen(running("main")), NOW - 1).look_at == NOW
    assert decide(late, seen(running("main")), NOW).ends
    facts = Facts(now=NOW, is_final=True, reason="DeadlineExceeded", message="late")
    status = pod_status(late, seen(ended("main", 137)), facts)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_the_grace_of_a_deletion_wins_and_is_never_zero() -> None:
    assert grace_of(pod(terminationGracePeriodSeconds=30)) == 30.0
    metadata = {"name": "p", "deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": 0}
    assert grace_of(decode_runnable({"metadata": metadata, "spec": {"containers": []}})) == 1.0


def test_conditions_say_what_is_missing() -> None:
    found = pod({"name": "a"}, {"name": "b"}, init=[{"name": "i"}], readinessGates=[{"conditionType": "gate"}])

    def conditions(now: Seen, **facts: Any) -> dict[str, tuple[str, str | None, str | None]]:
        told = pod_status(found, now, Facts(now=NOW, **facts))["conditions"]
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in told}

    first = conditions(seen(running("i")))
    assert first["Initialized"] == ("False", "ContainersNotInitialized", "containers with incomplete status: [i]")
    assert first["Ready"] == ("False", "ContainersNotReady", "containers with unready status: [a b]")
    both = frozenset("ab")
    ready = conditions(seen(ended("i"), running("a"), running("b"), started=both), ready=both)
    assert ready["ContainersReady"] == ("True", None, None)
    assert ready["Ready"][1] == "ReadinessGatesNotReady"
    assert ready["PodReadyToStartContainers"][0] == "True"
    assert conditions(Seen())["PodReadyToStartContainers"][0] == "False"


def test_container_states_carry_the_last_end() -> None:
    found = pod()
    again = pod_status(found, seen(running("main", 1), ended("main", 3)), Facts(now=NOW))["containerStatuses"][0]
    assert again["restartCount"] == 1
    assert "running" in again["state"]
    assert again["lastState"]["terminated"]["exitCode"] == 3
    waits = {"main": Waiting(reason="CrashLoopBackOff", message="back-off")}
    waiting = pod_status(found, seen(ended("main", 3)), Facts(now=NOW, waiting=waits))["containerStatuses"][0]
    assert waiting["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert waiting["lastState"]["terminated"]["reason"] == "Error"
    fresh = pod_status(found, Seen(), Facts(now=NOW))
    assert fresh["phase"] == "Pending"
    assert fresh["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}


def test_a_status_that_is_written_is_not_written_again() -> None:
    found = pod()
    status = pod_status(
        found, seen(running("main"), started=frozenset(("main",))), Facts(now=NOW, host_ips=("10.0.0.1",))
    )
    assert not is_same(status, {})
    assert is_same(status, status)
    later = pod_status(found, seen(ended("main", 1)), Facts(now=NOW, host_ips=("10.0.0.1",)))
    assert not is_same(later, status)


def test_variables_refer_to_earlier_ones_and_to_the_pod() -> None:
    container = {
        "name": "main",
        "envFrom": [{"prefix": "C_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s", "optional": True}}],
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "value": "$(A)-$(C_k)-$(NO)-$$(A)"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
            {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        ],
        "resources": {"limits": {"cpu": "1500m"}},
    }
    raw = {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": {"containers": [container]}}
    found = decode_runnable(raw)
    fetched = {("configmap", "c"): {"k": b"v", "1-st.key": b"w"}, ("secret", "s"): None}
    made = environment(found, found.spec.containers[0], PodFacts(), fetched)
    assert made == {
        "C_k": "v",
        "C_1-st.key": "w",
        "A": "1",
        "B": "1-v-$(NO)-$(A)",
        "POD": "p",
        "LABEL": "x",
        "CPU": "1500",
        "KEY": "v",
    }
    with pytest.raises(BadEnvironment, match='configmap "c" not found'):
        environment(found, found.spec.containers[0], PodFacts(), {("configmap", "c"): None})


@given(st.text(max_size=50))
def test_text_without_dollars_expands_to_itself(text: str) -> None:
    plain = text.replace("$", "")
    assert expand(plain, {"A": "b"}) == plain


@given(
    st.lists(
        st.tuples(st.sampled_from(("a", "b", "i")), st.sampled_from((RUNNING, EXITED)), st.integers(0, 2)), max_size=6
    ),
    st.sampled_from(("Always", "OnFailure", "Never")),
)
def test_nothing_runs_twice_and_a_status_can_always_be_told(records: list[tuple[str, str, int]], policy: str) -> None:
    found = pod({"name": "a"}, {"name": "b"}, init=[{"name": "i"}], restartPolicy=policy)
    made = [
        Record(id=f"{number}", name=name, attempt=number, state=state, exit_code=code, started_at=NOW, finished_at=NOW)
        for number, (name, state, code) in enumerate(records)
    ]
    now = seen(*made)
    decision = decide(found, now, NOW)
    names = [step.name for step in decision.steps if isinstance(step, Start)]
    assert len(names) == len(set(names))
    for name in names:
        newest = now.newest(name)
        assert newest is None or newest.state != RUNNING
    assert pod_status(found, now, Facts(now=NOW, is_final=decision.ends))["phase"]


def test_a_variable_from_a_config_map_may_begin_with_a_digit() -> None:
    container = {
        "name": "main",
        "envFrom": [{"configMapRef": {"name": "c"}}, {"prefix": "=", "configMapRef": {"name": "c"}}],
    }
    found = decode_runnable({"metadata": {"name": "p"}, "spec": {"containers": [container]}})
    fetched = {("configmap", "c"): {"1-bad.name": b"v"}}
    assert environment(found, found.spec.containers[0], PodFacts(), fetched) == {"1-bad.name": "v"}
