"""Claims that Kueue cannot count: the template, and what of it Kueue does not support."""

from __future__ import annotations

import re
from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from core.advice.explain.clusters import NOW, Object, template
from explain_corpus.objects import JSON, node, thing, uid_of

KUEUE = "kueue.x-k8s.io/v1beta2"
EXACT = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}


def claims(exactly: Object | None = None, **spec: Any) -> Object:
    """A template of claims with one request."""
    return template("t", {"devices": {"requests": [{"name": "gpu", "exactly": exactly or EXACT}], **spec}})


ALTERNATIVES = template("t", {"devices": {"requests": [{"name": "gpu", "firstAvailable": [{"name": "a", **EXACT}]}]}})
CASES = [
    (
        ALTERNATIVES,
        "FirstAvailable device selection is not supported",
        'request "gpu" of .* uses firstAvailable',
        "use exactly instead",
    ),
    (
        claims({"deviceClassName": "gpu", "allocationMode": "All"}),
        "AllocationMode 'All' is not supported",
        "uses allocationMode: All",
        "use a count of devices instead",
    ),
    (claims({**EXACT, "adminAccess": True}), "AdminAccess is not supported", "uses adminAccess", "use no adminAccess"),
    (
        claims({**EXACT, "selectors": [{"cel": {"expression": "true"}}]}),
        "CEL selectors are not supported",
        "uses selectors",
        "use a DeviceClass that has the selectors",
    ),
    (
        claims(constraints=[{"matchAttribute": "a/b"}]),
        "device constraints (MatchAttribute) are not supported",
        "uses constraints",
        "use no constraints",
    ),
    (claims(), "tolerations are not supported", "uses what Kueue does not support: tolerations", "drop from"),
]


def explained(said: str, *others: JSON, entry: str = "t") -> Explanation:
    """Why Job train is suspended, for what Kueue said of it."""
    spec = {
        "containers": [{"name": "main", "image": "x:1"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": entry}],
    }
    pods = {"spec": spec}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid_of("Job", "default", "train")}
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Inadmissible", "message": said}
    objects = (
        node("n1"),
        thing(
            "batch/v1",
            "Job",
            "train",
            "default",
            metadata={"labels": {"kueue.x-k8s.io/queue-name": "team"}},
            spec={"suspend": True, "template": pods},
        ),
        thing(KUEUE, "LocalQueue", "team", "default", spec={"clusterQueue": "cq"}),
        thing(
            KUEUE,
            "Workload",
            "job-train",
            "default",
            metadata={"ownerReferences": [owner | {"controller": True}]},
            spec={"queueName": "team", "podSets": [{"name": "main", "count": 1, "template": pods}]},
            status={"conditions": [condition]},
        ),
        *others,
    )
    return Explainer(Snapshot(tuple(map(read_object, objects)), NOW)).workload("job", "default", "train")


@pytest.mark.parametrize(("made", "said", "why", "advice"), CASES)
@pytest.mark.parametrize(
    "place",
    [
        "spec.podSets[0].template.spec.resourceClaims[0].devices: Invalid value: null: ",
        'x: Invalid value: "t": unsupported usage: ',
    ],
)
def test_the_template_and_what_it_uses_are_named(made: Object, said: str, why: str, advice: str, place: str) -> None:
    found = explained(place + said, made)
    assert "ResourceClaimTemplate default/t" in found.cause
    assert re.search(why, found.cause)
    assert found.changes[0].text.startswith(advice)


def test_without_a_place_the_template_that_uses_it_is_meant() -> None:
    found = explained("FirstAvailable device selection is not supported", ALTERNATIVES)
    assert "ResourceClaimTemplate default/t uses firstAvailable" in found.cause


@pytest.mark.parametrize(
    "said", ["spec.podSets[7].template.spec.resourceClaims[9]: x is not supported", "x is not supported"]
)
def test_a_message_about_nothing_that_is_known_is_passed_on(said: str) -> None:
    assert said in explained(said, claims()).cause
