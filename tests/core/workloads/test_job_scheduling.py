"""Jobs as groups: which get a Workload and a PodGroup, what these say, and what happens when a gang changes its size."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.actions import Create, Patch, Retry
from allot.core.model.codec import decode
from allot.core.model.scheduling_v1 import PodGroup, Workload
from allot.core.workloads.job_scheduling import Grouped, ensure_group, wanted_workload
from core.workloads.jobs import TEMPLATE, Object, begun, job, sync

GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
PARENT = [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "p", "controller": True}]
DELEGATED = {"ownerReferences": PARENT, "annotations": {"scheduling.k8s.io/group-template-name": "workers"}}


def made(grouped: Grouped) -> Object:
    (action,) = grouped.actions
    assert isinstance(action, Create)
    return dict(action.object)  # type: ignore[arg-type]


def workload(value: Object, **metadata: Any) -> Workload:
    return decode({**value, "metadata": {**value["metadata"], "uid": "w", **metadata}}, Workload).object


def group(value: Object) -> PodGroup:
    return decode({**value, "metadata": {**value["metadata"], "uid": "g"}}, PodGroup).object


@pytest.mark.parametrize(
    ("metadata", "template", "key"),
    [
        ({}, {}, "default/batch/Job/j"),
        ({"ownerReferences": PARENT}, {}, None),
        (DELEGATED, {}, "default/jobset.x-k8s.io/JobSet/set"),
        ({}, {"schedulingGroup": {"podGroupName": "mine"}}, None),
    ],
)
def test_which_jobs_are_groups(metadata: Object, template: Object, key: str | None) -> None:
    spec = {**TEMPLATE["spec"], **template}
    assert wanted_workload(job(metadata=metadata, template={"spec": spec})) == key


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ({}, {"basic": {}}),
        ({"scheduling": {}}, {"basic": {}}),
        ({"scheduling": {"schedulingPolicy": {"basic": {}}}}, {"basic": {}}),
        ({"scheduling": GANG}, {"gang": {"minCount": 3}}),
        ({"scheduling": {"schedulingPolicy": {"gang": {}}}, "parallelism": 5}, {"gang": {"minCount": 5}}),
        ({"scheduling": {"schedulingPolicy": {"gang": {}}}, "parallelism": 0}, {"gang": {"minCount": 1}}),
    ],
)
def test_the_policy_of_the_group(spec: Object, policy: Object) -> None:
    (template,) = made(ensure_group(job(**spec), False, [], []))["spec"]["podGroupTemplates"]
    assert template["schedulingPolicy"] == policy


def test_a_workload_then_a_group_then_pods() -> None:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    scheduling = {
        **GANG,
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": {"all": {}},
        "resourceClaims": claims,
    }
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}
    given = job(scheduling=scheduling, parallelism=4, template=template)
    grouped = ensure_group(given, False, [], [])
    first = made(grouped)
    assert first["spec"]["controllerRef"] == {"apiGroup": "batch", "kind": "Job", "name": "j"}
    (owner,) = first["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", "job-uid", True)
    expected = {**scheduling, "name": "j-pgt-0", "priorityClassName": "high"}
    assert first["spec"]["podGroupTemplates"] == [expected]
    # The name does not change, so that nobody makes it twice.
    assert made(ensure_group(given, False, [], [])) == first

    stored = workload(first)
    second = made(ensure_group(given, False, [stored], []))
    name = stored.metadata.name
    assert second["spec"] == {
        **scheduling,
        "priorityClassName": "high",
        "workloadRef": {"workloadName": name, "templateName": "j-pgt-0"},
    }
    assert second["metadata"]["name"].startswith(f"{name}-j-pgt-0-")
    assert [(one["kind"], one.get("controller", False)) for one in second["metadata"]["ownerReferences"]] == [
        ("Job", True),
        ("Workload", False),
    ]
    grouped = ensure_group(given, False, [stored], [group(second)])
    assert grouped == Grouped((), second["metadata"]["name"])
    (first_pod, *_) = sync(given, pod_group=grouped.pod_group).created
    assert first_pod["spec"]["schedulingGroup"] == {"podGroupName": second["metadata"]["name"]}
    assert len(first_pod["metadata"]["ownerReferences"]) == 1


@pytest.mark.parametrize(
    "status",
    [begun(), {"succeeded": 1}, {"failed": 1}, {"conditions": [{"type": "Suspended", "status": "True"}]}],
    ids=["begun", "succeeded", "failed", "suspended"],
)
def test_a_job_that_ran_before_gets_none(status: Object) -> None:
    assert ensure_group(job(status), False, [], []) == Grouped()
    assert ensure_group(job(), True, [], []) == Grouped()


def test_a_gang_changes_its_size() -> None:
    first = made(ensure_group(job(scheduling=GANG, parallelism=4), False, [], []))
    stored = workload(first)
    second = group(made(ensure_group(job(scheduling=GANG, parallelism=4), False, [stored], [])))
    larger = job(begun(), scheduling={"schedulingPolicy": {"gang": {"minCount": 4}}}, parallelism=4)
    grouped = ensure_group(larger, True, [stored], [second])
    patches = [action.patch["spec"] for action in grouped.actions if isinstance(action, Patch)]
    policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    assert patches == [{"podGroupTemplates": [{"name": "j-pgt-0", **policy}]}, policy]


def test_others_workloads_are_left_alone_and_odd_ones_are_told_of() -> None:
    first = made(ensure_group(job(), False, [], []))
    foreign = workload(first, ownerReferences=[])
    assert made(ensure_group(job(), False, [foreign], [])) == first
    own = workload(first)
    assert ensure_group(job(), False, [own, workload(first, name="other")], []) == Grouped()
    two = msgspec.structs.replace(own.spec, pod_group_templates=own.spec.pod_group_templates * 2)
    (retry,) = ensure_group(job(), False, [msgspec.structs.replace(own, spec=two)], []).actions
    assert isinstance(retry, Retry) and "has 2 PodGroupTemplates, want exactly 1" in retry.message


def test_an_owner_with_a_workload_says_which_template_is_the_jobs() -> None:
    templates = [{"name": "driver", "schedulingPolicy": {"basic": {}}}, {"name": "workers", **GANG}]
    theirs = workload({"metadata": {"name": "set", "namespace": "default"}, "spec": {"podGroupTemplates": templates}})
    given = job(metadata=DELEGATED)
    assert ensure_group(given, False, [], []) == Grouped()
    value = made(ensure_group(given, False, [theirs], []))
    assert value["spec"]["workloadRef"] == {"workloadName": "set", "templateName": "workers"}
    assert value["spec"]["schedulingPolicy"] == GANG["schedulingPolicy"]
    assert [one["kind"] for one in value["metadata"]["ownerReferences"]] == ["Job"]
    assert ensure_group(given, False, [theirs], [group(value)]) == Grouped((), value["metadata"]["name"])
    unknown = job(metadata={**DELEGATED, "annotations": {"scheduling.k8s.io/group-template-name": "nobody"}})
    assert ensure_group(unknown, False, [theirs], []) == Grouped()


def test_long_names_are_cut() -> None:
    given = job(metadata={"name": "n" * 253})
    first = made(ensure_group(given, False, [], []))
    assert len(first["metadata"]["name"]) == 253
    second = made(ensure_group(given, False, [workload(first)], []))
    assert len(second["metadata"]["name"]) == 253
