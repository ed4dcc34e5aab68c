"""Jobs: how many pods there should be, which of them go, and when a job is over. Cases are Kubernetes' documented rules."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Delete, LookUp, Patch, Update
from allot.core.lifecycle.times import time_of
from allot.core.model.batch_v1 import COMPLETION_INDEX, TRACKING_FINALIZER
from allot.core.workloads.job import reconcile_orphan
from allot.core.workloads.job_failures import Backoff
from allot.core.workloads.resources import JOBS
from core.workloads.jobs import NOW, TEMPLATE, Object, after, begun, job, pod, sync

PER_INDEX = {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 1}


def indexes(pods: list[Object]) -> list[str]:
    return [one["metadata"]["annotations"][COMPLETION_INDEX] for one in pods]


# --- how many pods ---


@pytest.mark.parametrize(
    ("spec", "active", "succeeded", "created", "deleted"),
    [
        # A fixed number of completions: never more at once than are still missing.
        ({"completions": 5, "parallelism": 2}, 0, 0, 2, 0),
        ({"completions": 5, "parallelism": 2}, 1, 2, 1, 0),
        ({"completions": 5, "parallelism": 2}, 1, 4, 0, 0),
        ({"completions": 5, "parallelism": 2}, 2, 4, 0, 1),
        ({"completions": 2, "parallelism": 10}, 0, 0, 2, 0),
        ({"completions": 5, "parallelism": 0}, 2, 0, 0, 2),
        ({"completions": 3, "parallelism": 3}, 5, 0, 0, 2),
        # A work queue: as many as parallelism says, until the first one succeeds.
        ({"parallelism": 3}, 0, 0, 3, 0),
        ({"parallelism": 3}, 2, 0, 1, 0),
        ({"parallelism": 3}, 2, 1, 0, 0),
        ({"parallelism": 1}, 2, 1, 0, 0),
        ({"parallelism": 1}, 2, 0, 0, 1),
        # Too many for one sync.
        ({"completions": 2000, "parallelism": 1000}, 0, 0, 500, 0),
        ({"completions": 2000, "parallelism": 0}, 600, 0, 0, 500),
        # Suspended: none.
        ({"completions": 5, "parallelism": 2, "suspend": True}, 2, 0, 0, 2),
        ({"completions": 5, "parallelism": 2, "suspend": True}, 0, 0, 0, 0),
    ],
)  # fmt: skip
def test_how_many_pods(spec: Object, active: int, succeeded: int, created: int, deleted: int) -> None:
    pods = [pod(f"p{number}", is_ready=True) for number in range(active)]
    wanted = sync(job(begun(succeeded=succeeded), **spec), *pods)
    assert (len(wanted.created), len(wanted.deleted)) == (created, deleted)
    # What is deleted because it is too many is neither a success nor a failure.
    assert sorted(wanted.untracked) == sorted(wanted.deleted)
    if wanted.status is not None and (created or deleted):
        assert wanted.status.get("active", 0) == active + created - deleted
        assert wanted.status["ready"] == active - deleted
        assert wanted.status["terminating"] == deleted


@pytest.mark.parametrize(
    ("policy", "created"), [("TerminatingOrFailed", 2), ("Failed", 1)], ids=["at once", "when they have ended"]
)
def test_pods_that_are_deleted_are_replaced(policy: str, created: int) -> None:
    made = job(begun(), completions=5, parallelism=2, podReplacementPolicy=policy)
    wanted = sync(made, pod("a", is_deleted=True), backoff=Backoff())
    # The deleted one failed just now, and so its successors wait, unless it has not ended yet.
    assert (wanted.wait_s, wanted.created) == (10.0, []) if policy != "Failed" else len(wanted.created) == created


def test_those_go_first_that_have_come_the_least_far() -> None:
    pods = (
        pod("ready", is_ready=True),
        pod("running"),
        pod("pending", "Pending"),
        pod("ready-too", is_ready=True),
    )
    wanted = sync(job(begun(), completions=9, parallelism=2), *pods)
    assert wanted.deleted == ["pending", "running"]


def test_a_job_that_is_deleted_makes_nothing_and_lets_its_pods_go() -> None:
    made = job(begun(), metadata={"deletionTimestamp": time_of(NOW)}, completions=3, parallelism=3)
    wanted = sync(made, pod("a"), pod("b", "Succeeded"))
    assert wanted.created == [] and wanted.deleted == []
    assert sorted(wanted.untracked) == ["a", "b"]


@pytest.mark.parametrize("spec", [{"managedBy": "acme.io/jobs"}, {"completionMode": "Odd"}])
def test_what_others_manage_or_nobody_knows_is_left_alone(spec: Object) -> None:
    wanted = sync(job(begun(), completions=3, parallelism=3, **spec))
    assert wanted.writes == [] or wanted.events == [
        ("UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
    ]
    assert wanted.created == []


def test_a_job_that_is_over_is_left_alone() -> None:
    over = begun(conditions=[{"type": "Complete", "status": "True"}])
    assert sync(job(over, completions=3, parallelism=3)).actions == ()


# --- what pods look like ---


def test_a_pod_is_as_the_template_says_and_carries_the_finalizer() -> None:
    template = {"metadata": {"labels": {"a": "b"}, "finalizers": ["x.io/y"]}, "spec": TEMPLATE["spec"]}
    (made,) = sync(job(template=template)).created
    assert made["metadata"]["generateName"] == "j-"
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["metadata"]["finalizers"] == ["x.io/y", TRACKING_FINALIZER]
    assert made["spec"] == TEMPLATE["spec"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": "job-uid",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_a_pod_of_an_index_is_told_so_everywhere() -> None:
    own = {"name": "JOB_COMPLETION_INDEX", "value": "mine"}
    spec = {
        "restartPolicy": "Never",
        "initContainers": [{"name": "first", "image": "x", "env": [own]}],
        "containers": [{"name": "main", "image": "x", "env": [{"name": "A", "value": "b"}]}],
    }
    made = job(template={"spec": spec}, completions=3, completionMode="Indexed")
    (created,) = sync(made, pod("a", index=0, phase="Succeeded")).created
    assert created["metadata"]["generateName"] == "j-1-"
    assert created["metadata"]["annotations"] == {COMPLETION_INDEX: "1"}
    assert created["metadata"]["labels"] == {COMPLETION_INDEX: "1"}
    assert created["spec"]["hostname"] == "j-1"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    added = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
    assert created["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}, added]
    assert created["spec"]["initContainers"][0]["env"] == [own]
    # The template is shared and stays as it was.
    assert "hostname" not in spec and spec["containers"][0]["env"] == [{"name": "A", "value": "b"}]  # type: ignore[index,call-overload]


def test_a_long_name_is_cut_before_the_index() -> None:
    name = "n" * 70
    (created,) = sync(job(metadata={"name": name}, completions=1, completionMode="Indexed")).created
    assert created["metadata"]["generateName"] == "n" * 55 + "-0-"


@pytest.mark.parametrize(
    ("pods", "status", "created", "deleted"),
    [
        ([], {}, ["0", "1", "2"], []),
        ([(0, "Running"), (2, "Running")], {}, ["1"], []),
        ([(0, "Running")], {"completedIndexes": "1-3"}, ["4", "5"], []),
        # The failure is not later than the success: nobody waits.
        ([(0, "Succeeded"), (1, "Failed")], {}, ["1", "2", "3"], []),
        # Two of one index: the one that has come less far goes. No index, or one that the job does not have: gone.
        ([(0, "Pending"), (0, "Running")], {}, [], ["0-Pending"]),
        ([(6, "Running"), (None, "Running")], {}, [], ["6-Running", "None-Running"]),
    ],
)
def test_which_indexes(
    pods: list[tuple[int | None, str]], status: Object, created: list[str], deleted: list[str]
) -> None:
    made = job(begun(**status), completions=6, parallelism=3, completionMode="Indexed")
    members = [pod(f"{index}-{phase}", phase, index=index, ended_s=5) for index, phase in pods]
    wanted = sync(made, *members)
    assert (indexes(wanted.created), wanted.deleted) == (created, deleted)


# --- pauses after failures ---


@pytest.mark.parametrize(
    ("failures", "ago_s", "wait_s"),
    [
        (1, 0, 10),
        (1, 4, 6),
        (2, 0, 20),
        (3, 0, 40),
        (6, 0, 320),
        (7, 0, 600),
        (50, 0, 600),
        (3, 41, None),
        (1, 10, None),
    ],
)
def test_successors_wait_longer_after_each_failure(failures: int, ago_s: float, wait_s: float | None) -> None:
    wanted = sync(job(begun(), completions=3), backoff=Backoff(failures, NOW - ago_s))
    assert wanted.wait_s == wait_s
    assert len(wanted.created) == (1 if wait_s is None else 0)


@pytest.mark.parametrize(
    ("before", "succeeded_ago", "failed_ago", "expected"),
    [
        (Backoff(), [], [5], Backoff(1, NOW - 5)),
        (Backoff(2, NOW - 100), [], [5, 9], Backoff(4, NOW - 5)),
        (Backoff(2, NOW - 100), [50], [], Backoff()),
        (Backoff(2, NOW - 100), [], [], Backoff(2, NOW - 100)),
        # Only failures behind the last success count.
        (Backoff(9, NOW - 100), [20], [30, 10, 5], Backoff(2, NOW - 5)),
        (Backoff(9, NOW - 100), [1], [30, 10], Backoff()),
    ],
)
def test_failures_are_counted_since_the_last_success(
    before: Backoff, succeeded_ago: list[float], failed_ago: list[float], expected: Backoff
) -> None:
    pods = [pod(f"s{ago}", "Succeeded", ended_s=ago, exit_code=0) for ago in succeeded_ago]
    pods += [pod(f"f{ago}", "Failed", ended_s=ago) for ago in failed_ago]
    assert sync(job(begun(), completions=9, backoffLimit=99), *pods, backoff=before).backoff == expected


# --- the end ---


def failing(code: int = 1, **more: Any) -> Any:
    return pod("f", "Failed", exit_code=code, ended_s=1, **more)


POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [1, 2]}},
    ]
}
DISRUPTED = {"type": "DisruptionTarget", "status": "True"}
RESTARTING = {"metadata": {}, "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "x"}]}}
LIMIT = ("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE = ("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline")
MET = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")


def restarted(times: int) -> Any:
    return pod("r", containerStatuses=[{"name": "main", "restartCount": times}])


@pytest.mark.parametrize(
    ("spec", "status", "pods", "expected"),
    [
        # The limit of failures.
        ({"backoffLimit": 0}, {}, [failing()], LIMIT),
        ({"backoffLimit": 1}, {}, [failing()], None),
        ({"backoffLimit": 2}, {"failed": 2}, [failing()], LIMIT),
        ({"backoffLimit": 2}, {"failed": 1, "uncountedTerminatedPods": {"failed": ["uid-x"]}}, [], None),
        ({"backoffLimit": 2}, {"failed": 2, "uncountedTerminatedPods": {"failed": ["uid-x"]}}, [],
         ("Failed", *LIMIT[1:])),
        # Restarts count where containers are restarted in place.
        ({"backoffLimit": 0, "template": RESTARTING}, {}, [restarted(0)], None),
        ({"backoffLimit": 0, "template": RESTARTING}, {}, [restarted(1)], LIMIT),
        ({"backoffLimit": 3, "template": RESTARTING}, {}, [restarted(2)], None),
        ({"backoffLimit": 3, "template": RESTARTING}, {}, [restarted(3)], LIMIT),
        ({"backoffLimit": 3}, {}, [restarted(3)], None),
        # The deadline, from the start.
        ({"activeDeadlineSeconds": 60}, {}, [pod("a")], DEADLINE),
        ({"activeDeadlineSeconds": 61}, {}, [pod("a")], None),
        ({"activeDeadlineSeconds": 10, "suspend": True}, {}, [], None),
        # The policy: the first rule that fits.
        ({"podFailurePolicy": POLICY, "backoffLimit": 0}, {}, [failing(9, conditions=[DISRUPTED])], None),
        ({"podFailurePolicy": POLICY, "backoffLimit": 5}, {}, [failing(1)], None),
        ({"podFailurePolicy": POLICY, "backoffLimit": 0}, {}, [failing(7)], LIMIT),
        ({"podFailurePolicy": POLICY}, {}, [failing(9)],
         ("FailureTarget", "PodFailurePolicy",
          "Container main for pod default/f failed with exit code 9 matching FailJob rule at index 2")),
        ({"podFailurePolicy": {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "Bad", "status": "True"}]}]}},
         {}, [pod("f", "Failed", conditions=[{"type": "Bad", "status": "True"}])],
         ("FailureTarget", "PodFailurePolicy", "Pod default/f has condition Bad matching FailJob rule at index 0")),
        # Success.
        ({"completions": 2}, {"succeeded": 1}, [pod("s", "Succeeded")], MET),
        ({"completions": 2}, {"succeeded": 1}, [pod("s", "Succeeded"), pod("a")], MET),
        ({"parallelism": 2}, {}, [pod("s", "Succeeded")], MET),
        ({"parallelism": 2}, {}, [pod("s", "Succeeded"), pod("a")], None),
        ({"completions": 0}, {}, [], ("Complete", MET[1], MET[2])),
        # What was announced before stays.
        ({"completions": 2},
         {"conditions": [{"type": "FailureTarget", "status": "True", "reason": "R", "message": "m"}], "succeeded": 2},
         [pod("a")], ("FailureTarget", "R", "m")),
    ],
)  # fmt: skip
def test_when_a_job_ends(spec: Object, status: Object, pods: list[Any], expected: tuple[str, str, str] | None) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec = {"completions": 3, **spec}
    if "podFailurePolicy" in spec:
        spec = {"podReplacementPolicy": "Failed", **spec}
    wanted = sync(job(begun(**status), **spec), *pods)
    found = [condition for condition in wanted.conditions if condition[0] != "Suspended"]
    assert (found[-1] if found else None) == expected
    if expected is not None:
        running = [one.metadata.name for one in pods if one.status.phase == "Running"]
        assert wanted.deleted == running and wanted.created == []


@pytest.mark.parametrize(
    ("spec", "status", "pods", "expected"),
    [
        ({}, {}, [("Failed", 0, 0)], None),
        ({}, {}, [("Failed", 0, 1)], None),
        ({"maxFailedIndexes": 0}, {}, [("Failed", 0, 1)],
         ("FailureTarget", "MaxFailedIndexesExceeded",
          "Job has exceeded the specified maximal number of failed indexes")),
        ({"maxFailedIndexes": 1}, {"failedIndexes": "2"}, [("Failed", 0, 1)],
         ("FailureTarget", "MaxFailedIndexesExceeded",
          "Job has exceeded the specified maximal number of failed indexes")),
        ({}, {"failedIndexes": "2", "completedIndexes": "0,1"}, [("Succeeded", 3, 0)],
         ("FailureTarget", "FailedIndexes", "Job has failed indexes")),
        ({"successPolicy": {"rules": [{"succeededCount": 2}]}}, {"completedIndexes": "1"}, [("Succeeded", 3, 0)],
         ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0")),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0-2"}, {"succeededIndexes": "2,3", "succeededCount": 1}]}},
         {}, [("Succeeded", 3, 0)], ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 1")),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0-2"}]}}, {}, [("Succeeded", 3, 0)], None),
        ({"successPolicy": {"rules": [{"succeededIndexes": "0-2"}]}}, {"completedIndexes": "0-1"},
         [("Succeeded", 2, 0), ("Running", 3, 0)], ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0")),
    ],
)  # fmt: skip
def test_when_an_indexed_job_ends(
    spec: Object, status: Object, pods: list[tuple[str, int, int]], expected: tuple[str, str, str] | None
) -> None:
    members = [
        pod(f"p{index}", phase, index=index, ended_s=1,
            annotations={"batch.kubernetes.io/job-index-failure-count": str(failures)})
        for phase, index, failures in pods
    ]  # fmt: skip
    wanted = sync(job(begun(**status), **{**PER_INDEX, **spec}), *members)
    assert (wanted.conditions[-1] if wanted.conditions else None) == expected


# --- failures of one index ---


def test_an_index_that_failed_is_tried_again_after_its_own_pause_and_its_successor_knows() -> None:
    failed = pod("a", "Failed", index=1, ended_s=25, annotations={"batch.kubernetes.io/job-index-failure-count": "0"})
    made = job(begun(), **{**PER_INDEX, "backoffLimitPerIndex": 3})
    others = [pod(f"p{index}", index=index) for index in (0, 2, 3)]
    wanted = sync(made, failed, *others)
    (created,) = wanted.created
    assert created["metadata"]["annotations"] == {
        COMPLETION_INDEX: "1",
        "batch.kubernetes.io/job-index-failure-count": "1",
    }
    # Until the successor is there, the failed one keeps the number of failures.
    assert wanted.untracked == []
    successor = pod("b", index=1, annotations={"batch.kubernetes.io/job-index-failure-count": "1"})
    assert sync(made, failed, successor, *others).untracked == ["a"]
    # After two failures the pause is twenty seconds, of which ten are over.
    twice = pod("b", "Failed", index=1, ended_s=10, annotations={"batch.kubernetes.io/job-index-failure-count": "1"})
    wanted = sync(made, twice, *others)
    assert (wanted.created, wanted.wait_s) == ([], 10.0)


def test_failures_that_a_policy_ignores_do_not_use_up_an_index() -> None:
    ignored = pod("a", "Failed", index=0, ended_s=60, conditions=[DISRUPTED])
    made = job(
        begun(), **{**PER_INDEX, "backoffLimitPerIndex": 0}, podFailurePolicy=POLICY, podReplacementPolicy="Failed"
    )
    wanted = sync(made, ignored, *[pod(f"p{index}", index=index) for index in (1, 2, 3)])
    (created,) = wanted.created
    assert created["metadata"]["annotations"] == {
        COMPLETION_INDEX: "0",
        "batch.kubernetes.io/job-index-failure-count": "0",
        "batch.kubernetes.io/job-index-ignored-failure-count": "1",
    }
    assert wanted.status is not None and wanted.status["failedIndexes"] == ""


def test_a_rule_can_give_an_index_up_at_once() -> None:
    policy = {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]}
    made = job(begun(), **PER_INDEX, podFailurePolicy=policy, podReplacementPolicy="Failed")
    failed = pod("a", "Failed", index=2, exit_code=42)
    wanted = sync(made, failed, *[pod(f"p{index}", index=index) for index in (0, 1, 3)])
    assert wanted.created == [] and wanted.untracked == ["a"]
    assert wanted.status is not None and wanted.status["failedIndexes"] == "2"


# --- counting ---


def test_a_pod_is_named_then_let_go_then_counted() -> None:
    made = job(begun(active=2), completions=5, parallelism=2)
    done, lost = pod("done", "Succeeded"), pod("lost", "Failed", ended_s=60)
    wanted = sync(made, done, lost)
    assert wanted.status is not None
    assert wanted.status["uncountedTerminatedPods"] == {"succeeded": ["uid-done"], "failed": ["uid-lost"]}
    assert wanted.status.get("succeeded", 0) == wanted.status.get("failed", 0) == 0
    assert sorted(wanted.untracked) == ["done", "lost"]
    # The status comes before the finalizers go.
    assert (
        wanted.writes.index(next(one for one in wanted.writes if hasattr(one, "subresource") and one.subresource)) < 3
    )
    # Still there: named, not counted, and not named twice.
    made = after(made, wanted)
    again = sync(made, done, lost)
    assert sorted(again.untracked) == ["done", "lost"]
    assert again.status is None or again.status["uncountedTerminatedPods"] == wanted.status["uncountedTerminatedPods"]
    # One has lost the finalizer, the other one is gone altogether.
    wanted = sync(made, pod("done", "Succeeded", is_tracked=False))
    assert wanted.status is not None
    assert wanted.status["uncountedTerminatedPods"] == {}
    assert (wanted.status["succeeded"], wanted.status["failed"]) == (1, 1)


def test_an_index_is_counted_by_its_number() -> None:
    made = job(
        begun(active=3, completedIndexes="0", succeeded=1), completions=4, parallelism=3, completionMode="Indexed"
    )
    wanted = sync(made, pod("a", "Succeeded", index=1), pod("b", "Succeeded", index=1), pod("c", index=2))
    assert wanted.status is not None
    assert (wanted.status["completedIndexes"], wanted.status["succeeded"]) == ("0,1", 2)
    assert wanted.status["uncountedTerminatedPods"] == {}
    assert sorted(wanted.untracked) == ["a", "b"]


def test_a_status_names_five_hundred_pods_at_most() -> None:
    made = job(begun(), completions=2000, parallelism=700)
    wanted = sync(made, *[pod(f"p{number}", "Succeeded") for number in range(700)])
    assert wanted.status is not None
    assert len(wanted.status["uncountedTerminatedPods"]["succeeded"]) == len(wanted.untracked) == 500


def test_a_job_that_fails_counts_what_still_runs_as_failed_and_waits_for_it_to_end() -> None:
    made = job(begun(active=2), completions=9, parallelism=2, activeDeadlineSeconds=60)
    wanted = sync(made, pod("a", is_ready=True), pod("b"))
    assert wanted.status is not None
    assert sorted(wanted.deleted) == sorted(wanted.untracked) == ["a", "b"]
    assert wanted.status["uncountedTerminatedPods"]["failed"] == ["uid-a", "uid-b"]
    assert (wanted.status.get("active", 0), wanted.status["terminating"], wanted.status["ready"]) == (0, 2, 0)
    made = after(made, wanted)
    ending = [pod(name, is_deleted=True, is_tracked=False) for name in "ab"]
    wanted = sync(made, *ending)
    assert wanted.status is not None and wanted.status["failed"] == 2
    assert [type_ for type_, _, _ in wanted.conditions] == ["FailureTarget"]
    wanted = sync(after(made, wanted))
    assert [type_ for type_, _, _ in wanted.conditions] == ["FailureTarget", "Failed"]
    assert wanted.events == [("DeadlineExceeded", "Job was active longer than specified deadline")]
    assert wanted.status is not None and "completionTime" not in wanted.status


def test_a_job_that_succeeds_says_when() -> None:
    made = job(begun(active=1), completions=1)
    wanted = sync(made, pod("a", "Succeeded"))
    assert wanted.conditions == [MET]
    wanted = sync(after(made, wanted), pod("a", "Succeeded", is_tracked=False))
    assert [type_ for type_, _, _ in wanted.conditions] == ["SuccessCriteriaMet", "Complete"]
    assert wanted.status is not None and wanted.status["completionTime"] == time_of(NOW)
    assert wanted.events == [("Completed", "Job completed")]


def test_a_job_does_not_end_before_it_has_begun_whoever_has_the_slower_clock() -> None:
    ahead = begun(active=1, startTime=time_of(NOW + 90))
    made = job(ahead, completions=1)
    wanted = sync(after(made, sync(made, pod("a", "Succeeded"))), pod("a", "Succeeded", is_tracked=False))
    assert wanted.status is not None and wanted.status["completionTime"] == time_of(NOW + 90)


def test_a_success_policy_lets_the_others_go_uncounted() -> None:
    rules = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    made = job(begun(active=2), completions=3, parallelism=3, completionMode="Indexed", **rules)
    wanted = sync(made, pod("a", "Succeeded", index=0), pod("b", index=1))
    assert wanted.deleted == ["b"] and sorted(wanted.untracked) == ["a", "b"]
    assert wanted.status is not None and wanted.status["uncountedTerminatedPods"] == {}
    # Were it deleted first, it would count as a failure when the write of the status fails.
    assert [type(each) for each in wanted.writes] == [Update, Patch, Patch, Delete]
    wanted = sync(after(made, wanted))
    assert [type_ for type_, _, _ in wanted.conditions] == ["SuccessCriteriaMet", "Complete"]
    assert wanted.status is not None and (wanted.status["succeeded"], wanted.status.get("failed", 0)) == (1, 0)


def test_an_indexed_job_can_be_made_smaller_and_larger() -> None:
    status = begun(completedIndexes="0,2,4", succeeded=3)
    made = job(status, completions=3, parallelism=3, completionMode="Indexed")
    wanted = sync(made, pod("a", index=1), pod("b", index=3))
    assert wanted.deleted == ["b"]
    assert wanted.status is not None
    assert (wanted.status["completedIndexes"], wanted.status["succeeded"]) == ("0,2", 2)
    wanted = sync(job(status, completions=6, parallelism=6, completionMode="Indexed"))
    assert indexes(wanted.created) == ["1", "3", "5"]


# --- suspension ---


def test_a_job_is_suspended_and_resumed() -> None:
    made = job(begun(active=1), completions=2, suspend=True)
    wanted = sync(made, pod("a"))
    assert wanted.deleted == wanted.untracked == ["a"]
    assert wanted.conditions == [("Suspended", "JobSuspended", "Job suspended")]
    assert wanted.events == [("Suspended", "Job suspended")]
    assert wanted.status is not None and "startTime" not in wanted.status
    resumed = job(wanted.status, completions=2, suspend=False)
    wanted = sync(resumed)
    assert len(wanted.created) == 1
    assert wanted.events == [("Resumed", "Job resumed")]
    assert wanted.status is not None and wanted.status["startTime"] == time_of(NOW)
    (condition,) = wanted.status["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "JobResumed", "Job resumed")


def test_a_job_that_begins_suspended_has_not_begun() -> None:
    wanted = sync(job(completions=2, suspend=True, activeDeadlineSeconds=5))
    assert wanted.status is not None and "startTime" not in wanted.status
    assert wanted.conditions == [("Suspended", "JobSuspended", "Job suspended")]
    assert wanted.wait_s is None


def test_a_deadline_is_looked_at_when_it_comes() -> None:
    assert sync(job(begun(), completions=2, activeDeadlineSeconds=100), pod("a")).wait_s == 40


# --- a server that refuses ---


def test_the_status_does_not_wait_for_pods_that_the_server_refuses() -> None:
    made = job(begun(), completions=5, parallelism=2)
    kinds = [type(one).__name__ for one in sync(made, pod("a", "Succeeded")).actions]
    assert kinds == ["Together", "Update", "Together"]
    wanted = sync(made, pod("a", "Succeeded"), is_refused=True)
    assert [type(one).__name__ for one in wanted.actions] == ["Update", "Together", "Together"]
    assert wanted.status is not None and wanted.status.get("active", 0) == 0 and len(wanted.created) == 2


# --- pods that lost their job ---


def test_a_pod_that_nobody_will_count_loses_the_finalizer() -> None:
    running = job(begun(), completions=3).value
    over = job(begun(conditions=[{"type": "Failed", "status": "True"}])).value
    elsewhere = job(begun(), managedBy="acme.io/jobs").value
    question = LookUp(resource=JOBS, name="j", namespace="default")
    other = {"metadata": {"uid": "another"}}
    mine = {"metadata": {"uid": "job-uid"}}
    assert reconcile_orphan(pod("a"), running, {}) == ()
    assert reconcile_orphan(pod("a"), elsewhere, {}) == ()
    assert len(reconcile_orphan(pod("a"), over, {})) == 1
    # The cache does not know the job: the server is asked.
    assert reconcile_orphan(pod("a"), None, {}) == (question,)
    assert reconcile_orphan(pod("a"), None, {question: mine}) == ()
    assert len(reconcile_orphan(pod("a"), None, {question: other})) == 1
    assert len(reconcile_orphan(pod("a"), None, {question: None})) == 1
    assert reconcile_orphan(pod("a", is_tracked=False), None, {}) == ()
