"""The end of a namespace."""

from __future__ import annotations

from typing import Any

from allot.core.lifecycle.actions import Resource
from allot.core.lifecycle.namespaces import (
    Leftover,
    Sweep,
    discovery_failure,
    finalized,
    grace_s,
    is_held_by_others,
    leftover,
    pause_s,
    phases,
    unexpected,
    with_conditions,
)
from allot.core.model.core_v1 import Pod, PodSpec, PodStatus

PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True)
CLAIMS = Resource(group="resource.k8s.io", version="v1", plural="resourceclaims", kind="ResourceClaim", namespaced=True)
NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def namespace(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ns"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}, **more}


def told(object_: dict[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    assert object_ is not None
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in object_["status"]["conditions"]}


def test_pods_go_before_everything_else():
    maps = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True)
    assert phases((CLAIMS, PODS, maps)) == ((PODS,), (maps, CLAIMS))
    assert phases((CLAIMS,)) == ((CLAIMS,),)


def test_what_is_left_is_counted_with_its_finalizers():
    objects = [{"metadata": {"finalizers": ["b", "a"]}}, {"metadata": {"finalizers": ["a"]}}, {"metadata": {}}]
    assert leftover(CLAIMS, objects) == Leftover(resource=CLAIMS, count=3, finalizers={"a": 2, "b": 1})
    assert leftover(CLAIMS, []) is None


def test_a_namespace_in_order_says_so_in_all_conditions():
    assert told(with_conditions(namespace(), Sweep(), NOW)) == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": ("False", "ContentRemoved", "All content successfully removed"),
        "NamespaceFinalizersRemaining": (
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    }


def test_conditions_name_what_is_left_what_holds_it_and_what_failed():
    left = Leftover(resource=CLAIMS, count=2, finalizers={"resource.kubernetes.io/delete-protection": 2})
    sweep = Sweep(
        leftovers=(left, Leftover(resource=PODS, count=1)),
        failures=("no", unexpected("ns", Leftover(resource=PODS, count=1))),
        discovery_failure="away",
    )
    said = told(with_conditions(namespace(), sweep, NOW))
    assert said["NamespaceContentRemaining"] == (
        "True",
        "SomeResourcesRemain",
        "Some resources are remaining: pods. has 1 resource instances, "
        "resourceclaims.resource.k8s.io has 2 resource instances",
    )
    assert said["NamespaceFinalizersRemaining"] == (
        "True",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: resource.kubernetes.io/delete-protection in 2 resource "
        "instances",
    )
    assert said["NamespaceDeletionContentFailure"] == (
        "True",
        "ContentDeletionFailed",
        "Failed to delete all resource types, 2 remaining: no, unexpected items still remain in namespace: ns for gvr: "
        "/v1, Resource=pods",
    )
    assert said["NamespaceDeletionDiscoveryFailure"] == ("True", "DiscoveryFailed", "away")


def test_conditions_are_written_only_when_they_change_and_keep_their_time_until_their_status_does():
    first = with_conditions(namespace(), Sweep(leftovers=(Leftover(resource=PODS, count=2),)), NOW)
    assert first is not None and first["status"]["phase"] == "Terminating"
    assert with_conditions(first, Sweep(leftovers=(Leftover(resource=PODS, count=2),)), LATER) is None
    fewer = with_conditions(first, Sweep(leftovers=(Leftover(resource=PODS, count=1),)), LATER)
    assert fewer is not None
    times = {one["type"]: one["lastTransitionTime"] for one in fewer["status"]["conditions"]}
    assert set(times.values()) == {NOW}
    clean = with_conditions(fewer, Sweep(), LATER)
    assert clean is not None
    times = {one["type"]: one["lastTransitionTime"] for one in clean["status"]["conditions"]}
    assert times["NamespaceContentRemaining"] == LATER and times["NamespaceDeletionContentFailure"] == NOW


def test_pods_get_the_longest_grace_period_of_all_until_it_is_over():
    pods = [
        Pod(spec=PodSpec(termination_grace_period_seconds=30)),
        Pod(spec=PodSpec(termination_grace_period_seconds=60), status=PodStatus(phase="Running")),
        Pod(spec=PodSpec(termination_grace_period_seconds=900), status=PodStatus(phase="Failed")),
        Pod(),
    ]
    assert grace_s(pods, 10) == 60
    assert grace_s(pods, 60) == 0


def test_pauses_grow_up_to_half_of_the_estimate():
    held = Sweep(leftovers=(Leftover(resource=CLAIMS, count=1, finalizers={"f": 1}),))
    assert [pause_s(held, attempt) for attempt in (0, 1, 2, 50)] == [0.1, 0.2, 0.4, 8.5]
    assert pause_s(Sweep(leftovers=(Leftover(resource=PODS, count=1),), grace_s=30), 50) == 16
    assert pause_s(Sweep(failures=("x",)), 50) == 60


def test_a_group_that_cannot_be_asked_keeps_the_namespace():
    assert discovery_failure(()) == ""
    text = discovery_failure(("metrics.k8s.io/v1beta1",))
    assert text.startswith("Discovery failed for some groups, 1 failing: ") and "metrics.k8s.io/v1beta1" in text
    assert not Sweep(discovery_failure=text).is_clean


def test_only_our_finalizer_is_removed():
    assert finalized(namespace()) == {**namespace(), "spec": {}}
    shared = namespace(spec={"finalizers": ["kubernetes", "example.com/other"]})
    assert finalized(shared)["spec"] == {"finalizers": ["example.com/other"]}
    assert is_held_by_others(shared) and not is_held_by_others(namespace())
