"""Components that have to act on a name and do not run: found by the words of their names, and nobody is accused without reason."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")


def deployment(name: str, replicas: int, *args: str) -> JSON:
    """Of a platform team."""
    container: JSON = {"name": "main", "image": "example.com/x:1", "args": list(args)}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return thing("apps/v1", "Deployment", name, "platform", spec=spec, status={})


def crashing(name: str, said: str) -> JSON:
    """A pod of a ReplicaSet, whose container ends again and again."""
    made = pod(f"{name}-x", "platform", on="n1")
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": uid_of("", "", name),
        "controller": True,
    }
    made["metadata"]["ownerReferences"] = [owner]
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    made["status"]["containerStatuses"] = [
        {"name": "main", "ready": False, "restartCount": 6, "state": state, "lastState": last}
    ]
    return made


def of_gate(gate: str, *others: JSON) -> str:
    """Why a pod with a gate waits."""
    gated = pod("job", schedulingGates=[{"name": gate}])
    objects: list[Any] = [read_object(each) for each in (node("n1"), gated, *others)]
    return Explainer(Snapshot(tuple(objects), NOW)).pod("default", "job").cause


@pytest.mark.parametrize(
    ("gate", "keeper"),
    [
        ("acme.io/licenses-fetched", deployment("license-fetcher", 0)),
        ("licenses.acme.io/ready", deployment("licenses", 0)),
        ("acme.io/approved", deployment("gatekeeper-of-jobs", 0, "--gate=acme.io/approved")),
        ("acme.io/LicensesFetched", deployment("license-fetcher", 0)),
    ],
)
def test_a_component_that_is_scaled_to_0_is_found_by_its_name_or_its_flags(gate: str, keeper: JSON) -> None:
    name = keeper["metadata"]["name"]
    assert f"Deployment platform/{name}, which seems to be what removes the gate, is scaled to 0" in of_gate(
        gate, keeper
    )


def test_a_component_that_crashes_is_found_by_its_name_or_its_last_words() -> None:
    assert "platform/license-6d-x" in of_gate("acme.io/licenses-fetched", crashing("license-6d", "no such table"))
    assert "platform/api-6d-x" in of_gate("acme.io/licenses-fetched", crashing("api-6d", "license server is gone"))


@pytest.mark.parametrize(
    "other",
    [
        deployment("license-fetcher", 2),
        deployment("acme-operator", 0),
        deployment("controller-manager", 0),
        deployment("billing", 0),
        crashing("billing-6d", "out of ideas"),
    ],
)
def test_nobody_is_accused_that_runs_or_has_only_common_words_in_its_name(other: JSON) -> None:
    assert "which the component that set it has not removed yet" in of_gate("acme.io/licenses-fetched", other)
