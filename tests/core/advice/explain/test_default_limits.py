"""Containers that are killed at a memory limit that is a default: the LimitRange is named, unless the limit was written after all."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = "2026-09-14T09:00:00Z"
SET = "LimitRanger plugin set: cpu, memory request for container main; cpu, memory limit for container main"


def killed(
    *, told: str = SET, owner: str = "Job", limit: str = "2Gi", is_init: bool = False, ended: bool = False
) -> JSON:
    """A pod whose container main was killed for its memory, of workload w. told: the annotation of LimitRanger."""
    end = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    again = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end}
    status = {"name": "main", "ready": False, "restartCount": 5, **({"state": end} if ended else again)}
    field = "initContainerStatuses" if is_init else "containerStatuses"
    made = pod("w-1", on="n1", status={"phase": "Failed" if ended else "Running", field: [status]})
    container = made["spec"]["containers"][0]
    container["resources"] = {"limits": {"memory": limit}, "requests": {"memory": "1Gi"}}
    if is_init:
        made["spec"]["initContainers"] = [container]
        made["spec"]["containers"] = [{"name": "app", "image": "x:1"}]
    made["metadata"]["annotations"] = {"kubernetes.io/limit-ranger": told} if told else {}
    if owner:
        reference = {"apiVersion": "v1", "kind": owner, "name": "w", "uid": uid_of(owner, "default", "w")}
        made["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    return made


def workload(kind: str = "Job", *, limit: str = "", failed: bool = False) -> JSON:
    """What makes the pod. limit: the memory limit in its template."""
    resources = {"limits": {"memory": limit}} if limit else {}
    spec = {"containers": [{"name": "main", "image": "x:1", "resources": resources}]}
    api = "batch/v1" if kind == "Job" else "apps/v1"
    template = {"metadata": {"labels": {"app": "w"}}, "spec": spec}
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    status = {"conditions": [condition], "failed": 1} if failed else {}
    return thing(api, kind, "w", "default", spec={"template": template}, status=status)


def limit_range(name: str = "lr", default: str = "2Gi", most: str = "", kind: str = "Container") -> JSON:
    """A LimitRange with a default."""
    item: JSON = {"type": kind}
    item |= {"default": {"memory": default}, "defaultRequest": {"memory": "1Gi"}} if default else {}
    item |= {"max": {"memory": most}} if most else {}
    return thing("v1", "LimitRange", name, "default", spec={"limits": [item]})


def explained(objects: Sequence[JSON], kind: str = "pod") -> Explanation:
    snapshot = Snapshot(tuple(read_object(each) for each in (node("n1"), *objects)), seconds_of(NOW))
    explainer = Explainer(snapshot)
    return explainer.pod("default", "w-1") if kind == "pod" else explainer.workload(kind, "default", "w")


def changes(found: Explanation) -> list[str]:
    return [each.text for each in found.changes]


def test_the_limit_range_whose_default_it_is_is_named_and_the_template_is_to_set_one() -> None:
    found = explained((killed(), workload(), limit_range(most="128Gi"), limit_range("other", "")))
    assert found.cause.endswith(
        "more memory than its limit of 2Gi (OOMKilled, 5 restarts): Job w has no memory limit for it, so LimitRange default/lr set "
        "its default of 2Gi"
    )
    first, second = changes(found)
    assert first == (
        "set resources.limits.memory and resources.requests.memory of container main in Job w to 4Gi, for example (LimitRange default/lr allows "
        "up to 128Gi and node n1 has 127Gi left), and recreate it"
    )
    assert second == (
        "raise default.memory of LimitRange default/lr from 2Gi to 4Gi, for example, which is for all new containers without a limit, and delete "
        "pod default/w-1"
    )


def test_a_limit_of_the_template_is_raised_there() -> None:
    # With the annotation too: of a template that was copied from a pod, or only for other resources.
    for told in ("", SET, "LimitRanger plugin set: cpu limit for container main; memory limit for container app"):
        found = explained((killed(told=told), workload(limit="2048Mi"), limit_range()))
        assert "LimitRange" not in found.cause
        assert changes(found)[0].startswith(
            "raise the memory limit and request of container main in Job w from 2Gi to 4Gi"
        )


def test_a_limit_range_that_was_changed_since_says_so_and_a_new_pod_gets_its_default() -> None:
    found = explained((killed(owner="StatefulSet"), workload("StatefulSet"), limit_range(default="8Gi")))
    assert found.cause.endswith(
        "StatefulSet w has no memory limit for it, so a LimitRange of namespace default set the default of 2Gi when the pod was "
        "created; the default of LimitRange default/lr is 8Gi by now"
    )
    assert changes(found)[0] == "delete pod default/w-1, so that it gets the default of 8Gi"
    assert changes(found)[1].startswith("set resources.limits.memory")
    lowered = explained((killed(), workload(), limit_range(default="1Gi")))
    assert changes(lowered)[0].startswith("set resources.limits.memory") and len(lowered.changes) == 1


def test_a_limit_range_that_is_gone_is_not_named() -> None:
    found = explained((killed(), workload()))
    assert found.cause.endswith("so a LimitRange of namespace default set the default of 2Gi")
    assert changes(found)[0].startswith("set resources.limits.memory") and len(found.changes) == 1


def test_a_template_that_has_a_limit_by_now_only_needs_a_new_pod() -> None:
    found = explained((killed(owner="DaemonSet"), workload("DaemonSet", limit="6Gi"), limit_range()))
    assert (
        "when the pod was created, DaemonSet w had no memory limit, so LimitRange default/lr set its default of 2Gi"
        in found.cause
    )
    assert found.cause.endswith("by now it has one of 6Gi")
    assert changes(found) == ["delete pod default/w-1, so that it gets the memory limit of DaemonSet w: 6Gi"]


def test_a_bare_pod_is_recreated_with_a_limit() -> None:
    found = explained((killed(owner=""), limit_range()))
    assert "the pod has no memory limit for it, so LimitRange default/lr" in found.cause
    first, second = changes(found)
    assert "of container main in the pod to 4Gi" in first and first.endswith(", and recreate it")
    assert second.endswith("and recreate the pod")


def test_an_init_container_has_defaults_too() -> None:
    told = "LimitRanger plugin set: memory limit for container app; memory limit for init container main"
    found = explained((killed(told=told, is_init=True), workload(), limit_range()))
    assert "LimitRange default/lr set its default of 2Gi" in found.cause
    assert "of container main in Job w to 4Gi" in changes(found)[0]


def test_not_more_than_a_limit_range_allows_is_proposed() -> None:
    found = explained((killed(), workload(), limit_range(), limit_range("top", "", "3Gi", "Pod")))
    assert "to 3Gi, for example (LimitRange default/top allows up to 3Gi" in changes(found)[0]
    assert "from 2Gi to 3Gi" in changes(found)[1]
    full = explained((killed(), workload(), limit_range(most="2Gi")))
    assert changes(full)[0].startswith(
        "raise max.memory of LimitRange default/lr above 2Gi, then set resources.limits.memory"
    )
    assert len(full.changes) == 1


def test_several_limit_ranges_with_the_same_default_are_all_named() -> None:
    found = explained((killed(), workload(), limit_range("a"), limit_range("b")))
    assert found.cause.endswith("LimitRanges default/a and default/b set the default of 2Gi")


def test_pods_and_jobs_that_have_failed_say_so_too() -> None:
    objects = (killed(ended=True), workload(failed=True), limit_range())
    for found in (explained(objects), explained(objects, "job")):
        assert "memory limit 2Gi): Job w has no memory limit for it, so LimitRange default/lr" in found.cause
        texts = [each for each in changes(found) if "LimitRange" in each or "resources.limits" in each]
        assert "of container main in Job w to 4Gi" in texts[0] and texts[0].count("recreate") == 1
        assert texts[1].endswith("and recreate Job w")
