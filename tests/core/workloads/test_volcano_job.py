"""Jobs of Volcano: pods, policies and status."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Action, Create, Delete, Emit, Patch, RequeueAfter, Together
from allot.core.model import core_v1
from allot.core.model.codec import decode_served
from allot.core.model.volcano_jobs import VolcanoJob
from allot.core.workloads.volcano_job import reconcile_job

NOW = 1_800_000_000.0
GROUP = {"metadata": {"uid": "g"}, "spec": {}}


def job(tasks: list[dict[str, Any]] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> VolcanoJob:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = [{"name": "w", "replicas": 2, "template": template}] if tasks is None else tasks
    body = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {"tasks": made, **spec},
        "status": status or {},
    }
    return decode_served(body, VolcanoJob)


def pod(
    index: int, phase: str = "Running", task: str = "w", version: int = 0, code: int = 0, **more: Any
) -> core_v1.Pod:
    labels = {"volcano.sh/task-spec": task, "volcano.sh/task-index": str(index)}
    annotations = {"volcano.sh/job-version": str(version)}
    ended = [{"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}]
    ended[0]["state"] = {"terminated": {"exitCode": code}}
    body = {
        "metadata": {"name": f"j-{task}-{index}", "namespace": "ns", "uid": f"{task}{index}"}
        | {"labels": labels, "annotations": annotations}
        | more,
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": phase, **({"containerStatuses": ended} if code else {})},
    }
    return decode_served(body, core_v1.Pod)


def done(actions: tuple[Action, ...]) -> dict[str, Any]:
    """The status that is written, and who is made and deleted."""
    found: dict[str, Any] = {"status": {}, "made": [], "deleted": []}
    for action in actions:
        if isinstance(action, Patch) and action.subresource == "status":
            found["status"] |= action.patch["status"]
        elif isinstance(action, Together):
            found["made"] += [each.object["metadata"]["name"] for each in action.writes if isinstance(each, Create)]  # type: ignore[index]
        elif isinstance(action, Create):
            found["made"].append(action.resource.kind)
        elif isinstance(action, Delete):
            found["deleted"].append(action.name)
    return found


def run(made: VolcanoJob, *pods: core_v1.Pod, group: dict[str, Any] | None = None) -> dict[str, Any]:
    return done(reconcile_job(made, pods, group, has_service=False, now_s=NOW))


def phase(found: dict[str, Any]) -> str:
    state: dict[str, str] = found["status"].get("state", {})
    return state.get("phase", "")


def test_a_new_job_gets_its_group_and_its_pods() -> None:
    found = run(job(plugins={"svc": [], "env": []}))
    assert found["made"] == ["PodGroup", "Service", "j-w-0", "j-w-1"]
    assert phase(found) == "Pending" and found["status"]["minAvailable"] == 2
    actions = reconcile_job(job(plugins={"svc": [], "env": []}, queue="q"), (), None, has_service=True, now_s=NOW)
    group = next(each for each in actions if isinstance(each, Create))
    assert group.object["spec"] == {"minMember": 2, "minTaskMember": {"w": 2}, "queue": "q"}  # type: ignore[index]
    (made,) = [each for each in actions if isinstance(each, Together)]
    first = made.writes[0].object  # type: ignore[union-attr]
    assert first["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "j-u"  # type: ignore[index]
    spec = first["spec"]  # type: ignore[index]
    assert (spec["schedulerName"], spec["hostname"], spec["subdomain"]) == ("volcano", "j-w-0", "j")
    assert {"name": "VC_W_HOSTS", "value": "j-w-0.j,j-w-1.j"} in spec["containers"][0]["env"]


def restarts(**policy: Any) -> dict[str, Any]:
    return {"policies": [{"action": "RestartJob", **policy}]}


LATER = "2026-01-01T00:00:00Z"
# What the job says beside its tasks, its pods, and what becomes of it: phase, pods made, pods deleted.
CASES: dict[str, tuple[dict[str, Any], list[core_v1.Pod], str, list[str], list[str]]] = {
    "all run": ({}, [pod(0), pod(1)], "Running", [], []),
    "one is missing": ({}, [pod(0)], "Pending", ["j-w-1"], []),
    "all succeeded": ({}, [pod(0, "Succeeded"), pod(1, "Succeeded")], "Completed", [], []),
    "too few succeeded": ({}, [pod(0, "Succeeded"), pod(1, "Failed")], "Failed", [], []),
    "enough succeeded": ({"minSuccess": 1}, [pod(0, "Succeeded"), pod(1, "Failed")], "Completed", [], []),
    "failed, no policy": ({}, [pod(0), pod(1, "Failed")], "Pending", [], []),
    "failed, restart": (restarts(event="PodFailed"), [pod(0), pod(1, "Failed")], "Restarting", [], []),
    "failed, any event": (restarts(events=["*"]), [pod(0), pod(1, "Failed")], "Restarting", [], []),
    "failed with the code": (restarts(exitCode=3), [pod(0), pod(1, "Failed", code=3)], "Restarting", [], []),
    "failed with another": (restarts(exitCode=3), [pod(0), pod(1, "Failed", code=4)], "Pending", [], []),
    "failed, abort": (
        {"policies": [{"event": "PodFailed", "action": "AbortJob"}]},
        [pod(1, "Failed")],
        "Aborted",
        [],
        [],
    ),
    "failed, that pod again": (
        {"policies": [{"event": "PodFailed", "action": "RestartPod"}]},
        [pod(0), pod(1, "Failed")],
        "Pending",
        [],
        ["j-w-1"],
    ),
    "evicted, restart": (restarts(event="PodEvicted"), [pod(0), pod(1, deletionTimestamp=LATER)], "Restarting", [], []),
    "task completed": (
        {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]},
        [pod(0, "Succeeded"), pod(1, "Succeeded")],
        "Completed",
        [],
        [],
    ),
    "fewer replicas": ({}, [pod(0), pod(1), pod(2)], "Running", [], ["j-w-2"]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_job(case: str) -> None:
    spec, pods, expected, made, deleted = CASES[case]
    group = {"metadata": {"uid": "g"}, "spec": {"minMember": 2, "minTaskMember": {"w": 2}}}
    found = run(job(**spec), *pods, group=group)
    assert (phase(found), found["made"], found["deleted"]) == (expected, made, deleted)


def test_a_restart_makes_all_pods_anew_as_often_as_it_may() -> None:
    policy = restarts(event="PodFailed")
    first = run(job(**policy), pod(0), pod(1, "Failed"))
    assert (first["status"]["version"], first["status"]["retryCount"]) == (1, 1)
    again = {"version": 1, "retryCount": 1, "state": {"phase": "Restarting"}}
    second = run(job(status=again, **policy), pod(0), pod(1, "Failed"))
    assert second["deleted"] == ["j-w-0", "j-w-1"]
    third = run(job(status=again, **policy), pod(0, version=1))
    assert third["made"] == ["PodGroup", "j-w-1"]
    last = run(job(status={**again, "retryCount": 3}, **policy), pod(0, "Failed", version=1))
    assert phase(last) == "Failed"
    assert "restarted 3 times" in last["status"]["state"]["message"]


def in_turn(first: dict[str, Any] | None = None, **after: Any) -> list[dict[str, Any]]:
    """A task of two pods, and one of two that depends on it."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    both = {"replicas": 2, "template": template}
    return [{"name": "a", **both, **(first or {})}, {"name": "b", **both, "dependsOn": {"name": ["a"], **after}}]


def test_a_task_has_its_pods_when_those_run_that_it_depends_on() -> None:
    made = job(in_turn())
    first = reconcile_job(made, (), None, has_service=True, now_s=NOW)
    assert done(first)["made"] == ["PodGroup", "j-a-0", "j-a-1"]
    # The gang does not wait for pods that are not made yet.
    group = next(each for each in first if isinstance(each, Create)).object
    assert group["spec"] == {"minMember": 2, "minTaskMember": {"a": 2}}  # type: ignore[index]
    known = {"metadata": {"uid": "g"}, "spec": group["spec"]}  # type: ignore[index]
    some = run(made, pod(0, task="a"), pod(1, "Pending", "a"), group=known)
    assert (some["made"], phase(some)) == ([], "Pending")
    actions = reconcile_job(made, (pod(0, task="a"), pod(1, task="a")), known, has_service=True, now_s=NOW)
    assert done(actions)["made"] == ["j-b-0", "j-b-1"]
    (patch,) = [each for each in actions if isinstance(each, Patch) and not each.subresource]
    assert patch.patch["spec"] == {"minMember": 4, "minTaskMember": {"a": 2, "b": 2}}
    # It keeps what it has, also when the others have ended.
    later = run(made, pod(0, "Succeeded", "a"), pod(1, "Failed", "a"), pod(0, task="b"), group=known)
    assert later["made"] == ["j-b-1"]
    whole = [pod(index, "Succeeded", task) for task in "ab" for index in range(2)]
    assert phase(run(made, *whole, group=known)) == "Completed"


def test_a_minimum_of_the_job_counts_only_pods_whose_turn_has_come() -> None:
    actions = reconcile_job(job(in_turn(), minAvailable=3), (), None, has_service=True, now_s=NOW)
    assert next(each for each in actions if isinstance(each, Create)).object["spec"]["minMember"] == 2  # type: ignore[index]


def test_after_a_restart_tasks_have_their_turns_again() -> None:
    again = {"version": 1, "retryCount": 1, "state": {"phase": "Restarting"}}
    known = {"metadata": {"uid": "g"}, "spec": {"minMember": 4, "minTaskMember": {"a": 2, "b": 2}}}
    old = [pod(index, task=task) for task in "ab" for index in range(2)]
    actions = reconcile_job(job(in_turn(), status=again), old, known, has_service=True, now_s=NOW)
    assert done(actions)["deleted"] == ["j-a-0", "j-a-1", "j-b-0", "j-b-1"]
    (patch,) = [each for each in actions if isinstance(each, Patch) and not each.subresource]
    assert patch.patch["spec"] == {"minMember": 2, "minTaskMember": {"a": 2, "b": None}}


def test_any_of_several_tasks_is_enough_if_the_task_says_so() -> None:
    def made(iteration: str) -> list[str]:
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        one = {"replicas": 1, "template": template}
        after = {"dependsOn": {"name": ["a", "b"], "iteration": iteration}}
        tasks = [{"name": "a", **one}, {"name": "b", **one}, {"name": "c", **one, **after}]
        found: list[str] = run(job(tasks), pod(0, task="a"), pod(0, "Pending", "b"), group=GROUP)["made"]
        return found

    assert (made("any"), made("all"), made("")) == (["j-c-0"], [], [])


def test_a_job_ends_if_a_task_can_never_have_its_turn() -> None:
    failed = run(job(in_turn()), pod(0, "Succeeded", "a"), pod(1, "Failed", "a"), group=GROUP)
    assert (phase(failed), failed["made"]) == ("Failed", [])
    enough = run(job(in_turn(), minSuccess=1), pod(0, "Succeeded", "a"), pod(1, "Failed", "a"), group=GROUP)
    assert phase(enough) == "Completed"


def test_tasks_that_depend_on_themselves_or_on_none_are_told() -> None:
    circle = in_turn({"dependsOn": {"name": ["b"]}})
    found = run(job(circle))
    assert (phase(found), found["made"]) == ("Failed", [])
    assert found["status"]["state"]["message"].endswith("task a depends on itself; task b depends on itself")
    actions = reconcile_job(job(in_turn(name=["x"])), (), None, has_service=True, now_s=NOW)
    (told,) = [each for each in actions if isinstance(each, Emit) and each.reason == "InvalidDependency"]
    assert told.note == "task b depends on task x, which the job does not have: expected one of a, b"


def test_nothing_of_a_job_that_is_over_runs_on_and_then_it_goes_too() -> None:
    over = {"state": {"phase": "Completed", "lastTransitionTime": "2027-01-15T08:00:00Z"}}
    assert run(job(status=over), pod(0), pod(1, "Succeeded"))["deleted"] == ["j-w-0"]
    waits = reconcile_job(job(status=over, ttlSecondsAfterFinished=60), (), None, has_service=True, now_s=NOW - 30)
    assert any(isinstance(each, RequeueAfter) for each in waits)
    assert run(job(status=over, ttlSecondsAfterFinished=0))["deleted"] == ["j"]


def test_a_status_that_says_so_already_is_not_written() -> None:
    known = {
        "state": {"phase": "Running"},
        "minAvailable": 2,
        "running": 2,
        "taskStatusCount": {"w": {"phase": {"Pending": 0, "Running": 2, "Succeeded": 0, "Failed": 0}}},
    }
    assert run(job(status=known), pod(0), pod(1))["status"] == {}


def test_a_malformed_template_makes_no_trouble() -> None:
    tasks = [{"name": "w", "replicas": 1, "template": {"metadata": "m", "spec": {"containers": ["c"]}}}]
    assert run(job(tasks, plugins={"env": []}))["made"] == ["PodGroup", "j-w-0"]
