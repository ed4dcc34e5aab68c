"""What becomes of a pod whose containers are to have more or less, and how people are told."""

from __future__ import annotations

from typing import Any

from allot.core.lifecycle.pod_status import Facts, is_same, pod_status, rejected_status
from allot.core.lifecycle.pods import EXITED, RUNNING, Record, Resize, ResizePod, Seen, Start, Stop, decide
from allot.core.lifecycle.resizing import (
    DEFERRED,
    RESIZE_PENDING,
    asked_for,
    condition,
    differs,
    effective,
    remembered,
    shrinks,
    summary,
    with_allocation,
)
from allot.core.model.core_v1 import ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod, decode_runnable

NOW = 1_800_000_000.0
Object = dict[str, Any]


def container(name: str, cpu: str, memory: str = "64Mi", **more: Any) -> Object:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}, **more}


def pod(*containers: Object, status: Object | None = None, **spec: Any) -> RunnablePod:
    metadata = {"name": "p", "namespace": "default", "uid": "u-1", "generation": 2}
    return decode_runnable(
        {"metadata": metadata, "spec": {"containers": list(containers), **spec}, "status": status or {}}
    )


def seen(running: dict[str, ResourceRequirements], **more: Any) -> Seen:
    records = {name: (Record(id=f"{name}-0", name=name, state=RUNNING, started_at=NOW),) for name in running}
    actuated = {f"{name}-0": each for name, each in running.items()}
    return Seen(sandbox="s", sandbox_attempt=0, records=records, actuated=actuated, **more)


def resources(cpu: str, memory: str = "64Mi") -> ResourceRequirements:
    return pod(container("main", cpu, memory)).spec.containers[0].resources


def test_containers_get_what_was_agreed_to_and_those_that_shrink_come_first() -> None:
    asked = pod(container("grows", "2"), container("stays", "1"), container("shrinks", "500m"))
    steps = decide(asked, seen({name: resources("1") for name in ("grows", "stays", "shrinks")}), NOW).steps
    assert steps == (Resize(id="shrinks-0", name="shrinks"), Resize(id="grows-0", name="grows"))


def test_a_container_that_must_start_anew_is_stopped_and_started_whatever_its_restart_policy_says() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    asked = pod(container("main", "2", "128Mi", resizePolicy=policy), restartPolicy="OnFailure")
    assert decide(asked, seen({"main": resources("1", "128Mi")}), NOW).steps == (Resize(id="main-0", name="main"),)
    (stop,) = decide(asked, seen({"main": resources("2")}), NOW).steps
    assert isinstance(stop, Stop)
    assert (stop.id, stop.message, stop.resizes) == ("main-0", "Container main resize requires restart", True)
    over = Record(id="main-0", name="main", state=EXITED, exit_code=0, started_at=NOW, finished_at=NOW)
    found = Seen(sandbox="s", sandbox_attempt=0, records={"main": (over,)}, restarting=frozenset({"main-0"}))
    decision = decide(asked, found, NOW)
    assert not decision.ends
    assert decision.steps == (Start(name="main", attempt=1),)


def test_only_processors_and_memory_make_a_difference() -> None:
    assert not differs(resources("1"), resources("1000m"))
    assert differs(resources("1"), resources("2"))
    assert differs(resources("1"), resources("1", "65Mi"))


def test_an_agent_that_was_started_again_goes_by_the_status() -> None:
    running = {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    status = {"containerStatuses": [{"name": "main", "resources": running}]}
    found = pod(container("main", "2"), container("new", "1"), status=status)
    assert remembered(found).containers == {"main": resources("1"), "new": resources("1")}
    agreed = with_allocation(found, remembered(found))
    assert str(agreed.spec.containers[0].resources.requests["cpu"]) == "1"
    assert with_allocation(found, asked_for(found)) is found
    assert shrinks(found, agreed)
    assert not shrinks(agreed, found)


def test_the_status_has_what_is_set_aside_and_what_runs() -> None:
    asked = pod(container("main", "2"))
    told = pod_status(asked, seen({"main": resources("1")}), Facts(now=NOW))["containerStatuses"][0]
    assert told["allocatedResources"] == {"cpu": "2", "memory": "64Mi"}
    assert told["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}


def test_a_condition_comes_with_the_generation_that_it_is_about_and_goes_with_the_resize() -> None:
    asked = pod(container("main", "2"))
    waits = condition(RESIZE_PENDING, 7, DEFERRED, "no room")
    status = pod_status(asked, seen({}), Facts(now=NOW, conditions=(waits,)))
    told = status["conditions"][-1]
    assert (told["type"], told["reason"], told["observedGeneration"]) == (RESIZE_PENDING, DEFERRED, 7)
    before = pod(container("main", "2"), status={"conditions": [{"type": RESIZE_PENDING, "status": "True"}]})
    after = pod_status(before, seen({}), Facts(now=NOW))
    assert {"type": RESIZE_PENDING, "$patch": "delete"} in after["conditions"]
    without = {**after, "conditions": [each for each in after["conditions"] if "$patch" not in each]}
    assert not is_same(after, {**without, "conditions": [*without["conditions"], told]})
    assert is_same(after, without)


def test_events_tell_all_resources() -> None:
    text = summary("OutOfcpu", pod({"name": "c1", "resources": {"requests": {"cpu": "5"}}}), 2, "no room")
    wanted = '{"containers":[{"name":"c1","resources":{"requests":{"cpu":"5"}}}],"generation":2,"error":"no room"}'
    assert text == f"Pod resize OutOfcpu: {wanted}"


def test_of_a_pod_that_was_rejected_only_the_reason_is_told() -> None:
    told = rejected_status(pod(container("main", "2")), "OutOfcpu", "too much", NOW)
    assert (told["phase"], told["reason"], told["message"]) == ("Failed", "OutOfcpu", "Pod was rejected: too much")
    assert "containerStatuses" not in told


# --- pods with resources of their own ---


def whole(cpu: str, memory: str = "1Gi") -> Object:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def test_a_pod_grows_before_its_containers_and_shrinks_after_them() -> None:
    asked = pod(container("grows", "2"), container("shrinks", "500m"))
    found = seen({name: resources("1") for name in ("grows", "shrinks")}, pod_is_settled=False)
    steps = decide(asked, found, NOW).steps
    assert steps[0] == ResizePod(is_growth=True)
    assert [each.name for each in steps if isinstance(each, Resize)] == ["shrinks", "grows"]
    assert steps[-1] == ResizePod(is_growth=False)


def test_a_pod_does_not_shrink_before_its_container_has_restarted() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    asked = pod(container("main", "1", "32Mi", resizePolicy=policy))
    grow, stop = decide(asked, seen({"main": resources("1")}, pod_is_settled=False), NOW).steps
    assert grow == ResizePod(is_growth=True)
    assert isinstance(stop, Stop)
    restarting = seen({"main": resources("1", "32Mi")}, pod_is_settled=False, restarting=frozenset({"main-0"}))
    assert decide(asked, restarting, NOW).steps == (ResizePod(is_growth=True),)


def test_a_container_without_limits_is_resized_with_its_pod() -> None:
    before = pod({"name": "main"}, resources=whole("1"))
    running = effective(before.spec.containers[0].resources, before.spec.resources)
    assert str(running.limits["cpu"]) == "1"
    after = pod({"name": "main"}, container("own", "1"), resources=whole("2"))
    steps = decide(after, seen({"main": running, "own": after.spec.containers[1].resources}), NOW).steps
    # "own" has limits, but none that the pod's change: they stay.
    assert steps == (Resize(id="main-0", name="main"),)
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    (stop,) = decide(
        pod({"name": "main", "resizePolicy": policy}, resources=whole("2")), seen({"main": running}), NOW
    ).steps
    assert isinstance(stop, Stop)


def test_the_status_says_what_the_pod_as_a_whole_has_but_limits_only_of_those_that_have_them() -> None:
    found = pod({"name": "main"}, resources=whole("2"), overhead={"cpu": "250m"})
    running = effective(found.spec.containers[0].resources, found.spec.resources)
    told = pod_status(found, seen({"main": running}), Facts(now=NOW))
    assert told["allocatedResources"] == {"cpu": "2250m", "memory": "1Gi"}
    assert told["resources"]["limits"] == {"cpu": "2250m", "memory": "1Gi"}
    assert told["containerStatuses"][0]["resources"] == {}
    # What it runs with while it is being resized.
    told = pod_status(found, seen({"main": running}), Facts(now=NOW, resources=resources("1")))
    assert told["resources"] == {"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "1", "memory": "64Mi"}}


def test_an_agent_that_was_started_again_remembers_the_pod_as_a_whole_without_its_overhead() -> None:
    status = {"resources": whole("1250m"), "containerStatuses": [{"name": "main", "resources": {}}]}
    found = pod({"name": "main"}, resources=whole("2"), overhead={"cpu": "250m"}, status=status)
    agreed = remembered(found)
    assert agreed.pod is not None
    assert str(agreed.pod.requests["cpu"]) == str(agreed.pod.limits["cpu"]) == "1"
    assert asked_for(found).differs(agreed)
    assert with_allocation(found, agreed).spec.resources is agreed.pod
    assert shrinks(found, with_allocation(found, agreed))
