"""Which kinds a policy's expressions are checked for."""

from __future__ import annotations

from typing import Any

from allot.core.policies.object_types import ObjectTypes
from allot.core.policies.type_checking import ServedKind, checked_kinds, param_kind

CORE = [ServedKind("", "v1", f"Kind{number:02}", f"kind{number:02}s", f"kind{number:02}") for number in range(20)]
OTHER = ServedKind("other.io", "v1", "Kind03", "kind03s", "kind03")
SERVED = [*CORE, OTHER, ServedKind("apps", "v1", "Deployment", "deployments", "deployment")]


def policy(*rules: tuple[str, str, list[str]]) -> dict[str, Any]:
    told = [{"apiGroups": [group], "apiVersions": [version], "resources": names} for group, version, names in rules]
    return {"spec": {"matchConstraints": {"resourceRules": told}}}


def kinds(*rules: tuple[str, str, list[str]]) -> list[str]:
    return [str(kind) for kind in checked_kinds(policy(*rules), SERVED)]


def test_a_rule_gives_ten_kinds_at_most_and_then_it_is_enough() -> None:
    names = [kind.plural for kind in reversed(CORE)]
    # The core group is any group to upstream's mapper, so two groups have the fourth one.
    expected = [*(f"/v1, Kind=Kind{number:02}" for number in range(9)), "other.io/v1, Kind=Kind03"]
    assert kinds(("", "v1", names), ("apps", "v1", ["deployments"])) == expected
    assert kinds(("", "v1", names[:3]), ("apps", "v1", ["deployments"]))[-1] == "apps/v1, Kind=Deployment"


def test_wildcards_and_subresources_name_no_kind() -> None:
    assert kinds(("*", "v1", ["deployments"]), ("apps", "*", ["deployments"])) == []
    assert kinds(("apps", "v1", ["*", "deployments/scale", "*/scale"])) == []
    assert kinds(("apps", "v1", ["*", "deployments"])) == ["apps/v1, Kind=Deployment"]
    assert checked_kinds({"spec": {}}, SERVED) == ()


def test_parameters_have_a_kind() -> None:
    assert param_kind({"spec": {"paramKind": {"apiVersion": "a.io/v1", "kind": "K"}}}) == ServedKind("a.io", "v1", "K")
    assert param_kind({"spec": {}}) is None


def test_schemas_that_contain_themselves_or_lack_a_part_have_types() -> None:
    told = {"x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Loop"}]}
    schema = {
        "type": "object",
        "properties": {
            "self": {"$ref": "#/components/schemas/Loop"},
            "gone": {"allOf": [{"$ref": "#/components/schemas/Gone"}]},
            "list": {"type": "array"},
        },
        **told,
    }
    types = ObjectTypes({"Loop": schema})
    declared = types.declare("", "v1", "Loop", "Loop")
    assert declared is not None
    assert sorted(types["Loop"]) == ["apiVersion", "kind", "metadata", "self"]
    assert types[types["Loop"]["self"].name] == {}
    assert sorted(types["Loop.metadata"]) == ["generateName", "name"]
    assert types.declare("", "v1", "Nothing", "Nothing") is None
    assert list(types) == ["Loop", "Loop.self", "Loop.metadata"] and len(types) == 3
