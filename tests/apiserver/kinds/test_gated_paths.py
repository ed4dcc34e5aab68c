"""Every field that belongs to a feature gate: dropped while the gate is off, and whoever wrote it is told field and gate."""

from __future__ import annotations

import re
from typing import Any

import pytest

from allot.apiserver.kinds.schemas import builtin_definitions
from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.resources import Resource
from allot.core.features import ALL_GATES, GATES, FeatureGates
from allot.core.validation.gated_paths import EACH, GatedPath, first_use, gated_paths

Object = dict[str, Any]

STORED = tuple(row for row in builtin_resources() if row.stored and row.version == row.storage_version)
CASES = tuple((row, each) for row in STORED for each in gated_paths(row.group, row.storage_version, row.kind))


def named(case: tuple[Resource, GatedPath]) -> str:
    row, each = case
    return f"{row.kind}-{'.'.join(each.path)}"


def without(gate: str) -> FeatureGates:
    return FeatureGates(frozenset(GATES) - {gate})


def definition_of(row: Resource) -> Object:
    for name, found in builtin_definitions().items():
        for known in found.get("x-kubernetes-group-version-kind", ()):
            if (known["group"], known["version"], known["kind"]) == (row.group, row.version, row.kind):
                return resolved({"$ref": f"#/$defs/{name}"})
    raise AssertionError(f"{row.kind} has a schema")


def resolved(schema: Object) -> Object:
    if "allOf" in schema:
        schema = schema["allOf"][0]
    while "$ref" in schema:
        schema = builtin_definitions()[schema["$ref"].rpartition("/")[2]]
    return schema


def sample(schema: Object, path: tuple[str, ...]) -> Any:
    """A value with nothing but the field at a path."""
    if "Quantity" in str(schema.get("$ref") or schema.get("allOf")):
        return "1"
    schema = resolved(schema)
    kind = schema.get("type", "object")
    kind = next(one for one in kind if one != "null") if isinstance(kind, list) else kind
    if kind == "array":
        return [sample(schema["items"], path)]
    if path and path[0] == EACH:
        return {"example.com/x": sample(schema["additionalProperties"], path[1:])}
    if path:
        return {path[0]: sample(schema["properties"][path[0]], path[1:])}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"example.com/x": sample(schema["additionalProperties"], ())}
    if kind != "object":
        return {"string": "x", "integer": 1, "number": 1, "boolean": True}[kind]
    names = schema.get("required") or tuple(schema.get("properties", ()))[:1]
    return {name: sample(schema["properties"][name], ()) for name in names}


def object_with(row: Resource, path: tuple[str, ...]) -> Object:
    made: Object = sample(definition_of(row), path)
    return {**made, "apiVersion": row.api_version, "kind": row.kind, "metadata": {"name": "x", "namespace": "default"}}


def prepared(row: Resource, each: GatedPath, gates: FeatureGates) -> tuple[Object, tuple[str, ...]]:
    """The object as it would be stored, and what its writer is told."""
    strategy, given = strategy_for(row, gates=gates), object_with(row, each.path)
    if not each.is_status:
        kept = strategy.prepare_create(given)
        return kept, strategy.dropped(given, kept, None, "")
    old = {name: value for name, value in given.items() if name != "status"}
    kept = strategy.prepare_update(given, old, "status")
    return kept, strategy.dropped(given, kept, old, "status")


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_field_whose_gate_is_off_is_dropped_and_its_writer_is_told(case: tuple[Resource, GatedPath]) -> None:
    row, each = case
    place = first_use(object_with(row, each.path), each.path)
    assert place, "the field is set"
    gates = without(each.gate)
    kept, told = prepared(row, each, gates)
    assert not first_use(kept, each.path)
    assert any(line.startswith(f"{place}: ") and f"feature gate {each.gate}," in line for line in told), told


@pytest.mark.parametrize("case", [case for case in CASES if case[1].gate in GATES], ids=named)
def test_a_field_whose_gate_is_on_is_kept_without_a_word(case: tuple[Resource, GatedPath]) -> None:
    row, each = case
    kept, told = prepared(row, each, ALL_GATES)
    assert first_use(kept, each.path)
    assert not [line for line in told if each.gate in line]


# Fields of which Kubernetes' schemas say that they need a gate, although it is on by default in 1.37, or that have a gate of which
# they are not the field: what is in a selector, a name in a reference.
ON_BY_DEFAULT = {
    "terminatingReplicas", "minReplicas", "supplementalGroupsPolicy", "resources", "clusterTrustBundle", "fileKeyRef", "key", "matchLabelKeys",
    "terminationGracePeriodSeconds", "nodeAffinity", "observedGeneration", "errorCode", "dataSourceRef", "priority",
    "nodeAllocatableUpdatePeriodSeconds", "preventPodSchedulingIfMissing", "resourceClaims", "claims", "expression",
    "allocationTimestamp", "matchAttribute", "resourceClaimTemplateName", "disableResizePreemption", "tolerations",
}  # fmt: skip
# A word with a capital inside, before the words feature gate.
GATE = re.compile(r"\b(?=\w{7})[A-Z]\w*[A-Z]\w*\b(?=[`\"' ]* *feature[ -]?gate)")


def test_every_gated_field_of_kubernetes_is_in_the_table() -> None:
    known = {each.path[-1] for _, each in CASES}
    for name, found in builtin_definitions().items():
        if name.startswith("io.k8s.api.") and ".v1." in name:
            for field, schema in found.get("properties", {}).items():
                if GATE.search(schema.get("description") or "") and field not in ON_BY_DEFAULT:
                    assert field in known, f"{name}.{field}"


@pytest.mark.parametrize("kind", ["Deployment", "Pod", "Job"])
def test_what_a_stored_object_uses_stays_without_a_word(kind: str) -> None:
    row = next(row for row in STORED if row.kind == kind)
    each = next(each for each in gated_paths(row.group, row.version, kind) if each.gate == "GenericWorkload")
    strategy, given = strategy_for(row, gates=without("GenericWorkload")), object_with(row, each.path)
    kept = strategy.prepare_update(given, given, "")
    assert first_use(kept, each.path)
    assert strategy.dropped(given, kept, given, "") == ()
