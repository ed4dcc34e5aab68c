"""Queues of teams that cannot mean what they say, and names of queues that lead nowhere."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, cluster, findings, the


def queue(name: str, gpu: str, parent: str = "", more: str = "") -> str:
    above = f"  parentQueue: {parent}\n" if parent else ""
    return (
        f"---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\nspec:\n{above}{more}"
        f"  resources:\n    gpu: {gpu}\n    cpu: {{quota: -1, limit: -1}}\n    memory: {{quota: -1, limit: -1}}\n"
    )


def pod(queue_name: str) -> str:
    return (
        f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, labels: {{kai.scheduler/queue: {queue_name}}}}}\n"
        "spec: {containers: [{name: c, image: 'registry.example.com/i:1'}]}\n"
    )


def test_queues_that_agree_are_fine() -> None:
    text = queue("all", "{quota: 4, limit: -1}") + queue("a", "{quota: 2, limit: 4}", "all")
    assert findings(text + queue("b", "{quota: 2, limit: 2}", "all") + pod("a")) == []


def test_children_that_add_up_to_more_than_their_parent() -> None:
    text = queue("all", "{quota: 4, limit: -1}") + queue("a", "{quota: 3, limit: -1}", "all")
    found = the(text + queue("b", "{quota: 2, limit: -1}", "all"), "queue-children")
    assert found.message == (
        "a, b deserve 5 GPUs together, and queue all above them deserves 4 GPUs: not all of it is guaranteed"
    )
    assert found.field == "spec.resources.gpu.quota"
    assert found.object == "Queue all"


def test_a_limit_below_what_is_deserved() -> None:
    found = the(queue("a", "{quota: 4, limit: 2}"), "queue-limit")
    assert found.message.startswith("the queue deserves 4 GPUs but its limit is 2 GPUs")
    assert found.severity is Severity.WARNING


def test_volcano_queues_are_checked_in_their_fields() -> None:
    text = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\n"
        "spec: {parent: root, deserved: {cpu: '4'}, capability: {cpu: '2'}}\n"
    )
    found = the(text, "queue-limit")
    assert found.field == "spec.capability.cpu"
    assert "deserves 4 cores but its limit is 2 cores" in found.message


def test_a_misspelt_queue_is_told_with_the_right_one() -> None:
    found = the(queue("research", "{quota: 1, limit: -1}") + pod("reserch"), "unknown-queue")
    assert (found.severity, found.field) == (Severity.WARNING, "metadata.labels[kai.scheduler/queue]")
    assert found.fix is not None
    assert "research" in found.fix.text


def test_a_queue_that_the_cluster_lacks_is_an_error() -> None:
    known = cluster(queue("research", "{quota: 1, limit: -1}").removeprefix("---\n"))
    assert the(pod("else").removeprefix("---\n"), "unknown-queue", known).severity is Severity.ERROR
    assert not by_rule(pod("research").removeprefix("---\n"), "unknown-queue", known)
    orphan = queue("team", "{quota: 1, limit: -1}", "nobody").removeprefix("---\n")
    assert the(orphan, "unknown-queue", known).field == "spec.parentQueue"


def test_without_a_cluster_queues_of_others_may_be_meant() -> None:
    assert not by_rule(pod("elsewhere").removeprefix("---\n"), "unknown-queue")


def test_what_is_no_duration_is_told() -> None:
    found = the(queue("a", "{quota: 1, limit: -1}", more="  reclaimMinRuntime: ten minutes\n"), "invalid-value")
    assert found.message == '"ten minutes" is not a duration and is ignored: expected a value such as 10m or 1h30m'


@pytest.mark.parametrize(
    ("version", "naming"),
    [
        ("scheduling.x-k8s.io/v1alpha1", "labels: {scheduling.x-k8s.io/pod-group: g}"),
        ("scheduling.run.ai/v2alpha2", "annotations: {pod-group-name: g}"),
        ("scheduling.volcano.sh/v1beta1", "annotations: {scheduling.k8s.io/group-name: g}"),
    ],
)
def test_groups_of_other_schedulers_need_as_many_pods_and_the_same_priority(version: str, naming: str) -> None:
    text = f"""\
apiVersion: {version}
kind: PodGroup
metadata: {{name: g}}
spec: {{minMember: 3, priorityClassName: high}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: j}}
spec:
  parallelism: 2
  template:
    metadata: {{{naming}}}
    spec:
      restartPolicy: Never
      containers: [{{name: c, image: 'registry.example.com/i:1'}}]
"""
    found = the(text, "group-minimum")
    assert (found.field, found.message.partition(":")[0]) == (
        "spec.minMember",
        "the group needs 3 pods at once, but only 2 in the input refer to it",
    )
    assert "its PodGroup g has priority class high" in the(text, "group-priority").message
    assert not by_rule(text.replace("parallelism: 2", "parallelism: 3"), "group-minimum")
