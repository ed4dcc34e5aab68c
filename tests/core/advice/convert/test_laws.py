"""What holds for any input: nothing that restricts is lost in silence, results are valid and stay as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.advice.convert import Converted, Options, convert
from allot.core.advice.convert.objects import leaves
from allot.core.advice.places import Path
from allot.core.features import ALL_GATES
from allot.core.validation.validate import DEFAULT_NAMESPACE, prepare_create, validate_create

ALL = Options(migrate=True, gangs=True)

# Values that stand for themselves in a result: each differs from everything else in the input.
words = st.sampled_from(["alpha7", "bravo7", "charlie7", "delta7"])
sizes = st.sampled_from(["17Gi", "33Gi", "47G"])
numbers = st.integers(11, 19)
scalars = words | sizes | numbers

comparisons = st.fixed_dictionaries(
    {"value": sizes, "operator": st.sampled_from(["Equals", "LessThan", "GreaterThan"])}
)
properties = (
    st.fixed_dictionaries({"productName": words})
    | st.fixed_dictionaries({"uuid": words})
    | st.fixed_dictionaries({"memory": comparisons})
    | st.fixed_dictionaries({"index": numbers})
    | st.fixed_dictionaries({"rack": words})
)
trees = st.recursive(
    properties,
    lambda below: (
        st.fixed_dictionaries({"andExpression": st.lists(below, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"orExpression": st.lists(below, min_size=1, max_size=3)})
    ),
    max_leaves=6,
)
parameters = st.fixed_dictionaries(
    {},
    optional={
        "count": numbers,
        "memory": sizes,
        "model": words,
        "architecture": words,
        "computeCapability": st.sampled_from(["8.6", "9.0"]),
        "selector": trees,
        "profile": st.sampled_from(["1g.5gb", "mig-2g.10gb", "half"]),
        "topology": st.fixed_dictionaries({"nvlink": words}),
        "rack": scalars,
        "sharing": st.sampled_from([{"strategy": "MPS"}, "TimeSlicing", {"strategy": "Halves"}]),
    },
)
claim_specs = st.fixed_dictionaries(
    {"resourceClassName": st.sampled_from(["gpu.nvidia.com", "gpu.example.com", "cards", "unheard-of"])},
    optional={
        "parameters": parameters,
        "constraints": st.lists(
            st.fixed_dictionaries({"nodeSelector": st.fixed_dictionaries({"pool": words})})
            | st.fixed_dictionaries({"rack": words}),
            max_size=2,
        ),
        "nodeSelector": st.fixed_dictionaries({"zone": words}),
        "tier": words,
        "allocationMode": st.sampled_from(["WaitForFirstConsumer", "Immediate"]),
    },
)
classes = st.fixed_dictionaries(
    {"driverName": st.sampled_from(["gpu.nvidia.com", "cards.example.com"])},
    optional={
        "suitableNodes": words.map(
            lambda word: {"nodeSelectorTerms": [{"matchExpressions": [{"key": word, "operator": "Exists"}]}]}
        ),
        "tier": words,
    },
)


def documents(class_fields: dict[str, Any], spec: dict[str, Any], with_pod: bool) -> list[dict[str, Any]]:
    class_ = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "metadata": {"name": "cards"}}
    claim = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClaim", "metadata": {"name": "claim"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod"},
        "spec": {
            "containers": [{"name": "main", "image": "image", "resources": {"claims": [{"name": "card"}]}}],
            "resourceClaims": [{"name": "card", "source": {"resourceClaimName": "claim"}}],
        },
    }
    return [{**class_, **class_fields}, {**claim, "spec": spec}, *([pod] if with_pod else [])]


inputs = st.builds(documents, classes, claim_specs, st.booleans())


def is_told(document: int, path: Path, result: Converted) -> bool:
    """Whether a problem names a field or what it is in."""
    return any(
        problem.document == document and problem.path and path[: len(problem.path)] == problem.path
        for problem in result.problems
    )


def restricting(given: list[dict[str, Any]]) -> list[tuple[int, Path, Any]]:
    ignored = ("apiVersion", "kind", "metadata")
    return [
        (number, path, value)
        for number, document in enumerate(given)
        for path, value in leaves(document)
        if path[0] not in ignored and path[-1] != "operator" and value not in ("WaitForFirstConsumer", "claim", {}, [])
    ]


@given(inputs)
def test_what_restricts_is_in_the_result_or_named_by_a_problem(given_documents: list[dict[str, Any]]) -> None:
    result = convert(given_documents)
    text = json.dumps([document.value for document in result.documents]).lower()
    for number, path, value in restricting(given_documents):
        wanted = str(value).lower().removeprefix("mig-")
        assert wanted in text or is_told(number, path, result), (path, value)


@given(inputs)
def test_every_field_that_is_gone_is_named_by_a_change_or_a_problem(given_documents: list[dict[str, Any]]) -> None:
    result = convert(given_documents)
    kept = {document.origin: set(leaves_of(document.value)) for document in result.documents}
    for number, document in enumerate(given_documents):
        for path, value in leaves(document):
            if value in ({}, []):
                continue
            changed = any(
                change.document == number and (path[: len(change.path)] == change.path or change.path == ("kind",))
                for change in result.changes
            )
            assert (path, json.dumps(value)) in kept.get(number, ()) or changed or is_told(number, path, result), path


def leaves_of(value: Any) -> list[tuple[Path, str]]:
    return [(path, json.dumps(item)) for path, item in leaves(value)]


@pytest.mark.slow
@given(inputs)
def test_results_are_valid_and_converting_them_changes_nothing(given_documents: list[dict[str, Any]]) -> None:
    result = convert(given_documents)
    if result.errors:
        return
    values = [document.value for document in result.documents]
    again = convert(values, ALL)
    assert again.changes == ()
    assert [document.value for document in again.documents] == values
    for value in values:
        prepared = prepare_create(value, gates=ALL_GATES, now=None, namespace=DEFAULT_NAMESPACE)
        assert prepared.envelope.unknown_fields == ()
        assert validate_create(prepared, gates=ALL_GATES) == ()


# --- anything at all ---

KINDS = [
    ("resource.k8s.io/v1alpha2", "ResourceClass"),
    ("resource.k8s.io/v1alpha2", "ResourceClaim"),
    ("resource.k8s.io/v1alpha2", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1alpha2", "ResourceSlice"),
    ("resource.k8s.io/v1alpha2", "ResourceClaimParameters"),
    ("resource.k8s.io/v1beta1", "ResourceClaim"),
    ("resource.k8s.io/v1alpha3", "ResourceSlice"),
    ("resource.k8s.io/v1alpha3", "DeviceTaintRule"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1beta1", "ResourceClaimList"),
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    ("scheduling.k8s.io/v1alpha1", "Workload"),
    ("v1", "Pod"),
    ("v1", "List"),
]
KEYS = [
    "spec",
    "metadata",
    "name",
    "labels",
    "items",
    "driverName",
    "parametersRef",
    "parameters",
    "suitableNodes",
    "structuredParameters",
    "resourceClassName",
    "deviceClassName",
    "devices",
    "requests",
    "exactly",
    "firstAvailable",
    "selectors",
    "cel",
    "expression",
    "config",
    "opaque",
    "constraints",
    "nodeSelector",
    "namedResources",
    "instances",
    "attributes",
    "basic",
    "capacity",
    "resourceClaims",
    "source",
    "containers",
    "resources",
    "claims",
    "limits",
    "nvidia.com/gpu",
    "minMember",
    "podGroups",
    "policy",
    "count",
    "selector",
    "sharing",
    "driverRequests",
    "status",
]
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 40)
    | st.sampled_from(["", "x", "1Gi", "device.driver", "“x”", "a.b/c"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS), below, max_size=5),
    max_leaves=25,
)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), junk, max_size=6)),
        min_size=1,
        max_size=3,
    )
)
def test_any_values_are_converted_or_refused(parts: list[tuple[tuple[str, str], dict[str, Any]]]) -> None:
    given_documents = [{"apiVersion": kind[0], "kind": kind[1], **fields} for kind, fields in parts]
    before = json.dumps(given_documents)
    result = convert(given_documents, ALL)
    assert json.dumps(given_documents) == before, "the input is left alone"
    if not result.errors:
        again = convert([document.value for document in result.documents], ALL)
        assert again.changes == ()
