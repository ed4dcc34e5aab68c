"""Strategic merge patch on real kinds, as kubectl sends it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.patching import PatchError, strategic_merge_patch
from allot.core.schema import Schema


def schema(group: str, version: str, kind: str) -> Schema:
    found = builtin_schemas().for_kind(group, version, kind)
    assert found is not None
    return found


POD = schema("", "v1", "Pod")
DEPLOYMENT = schema("apps", "v1", "Deployment")


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"{name}:1", **more}


def containers(*items: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(items), **spec}}


def names(object_: dict[str, Any], field: str = "containers", key: str = "name") -> list[Any]:
    return [each[key] for each in object_["spec"][field]]


def test_elements_with_the_same_key_are_merged_and_new_ones_are_added() -> None:
    object_ = containers(container("a"), container("b"))
    before = copy.deepcopy(object_)
    patch = containers({"name": "b", "image": "b:2"}, container("c"))
    result = strategic_merge_patch(object_, patch, POD)
    assert names(result) == ["a", "b", "c"]
    assert result["spec"]["containers"][1] == {"name": "b", "image": "b:2"}
    assert object_ == before


def test_an_element_can_be_deleted() -> None:
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}
    assert names(strategic_merge_patch(containers(container("a"), container("b")), patch, POD)) == ["b"]


def test_a_list_can_be_replaced() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, container("z"), container("y")]}}
    assert names(strategic_merge_patch(containers(container("a"), container("b")), patch, POD)) == ["z", "y"]


def test_an_object_can_be_replaced_or_emptied() -> None:
    object_ = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    replaced = strategic_merge_patch(object_, {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}, POD)
    assert replaced == {"metadata": {"labels": {"c": "3"}}}
    emptied = strategic_merge_patch(object_, {"metadata": {"labels": {"$patch": "delete"}}}, POD)
    assert emptied == {"metadata": {"labels": {}}}


def test_null_removes_members() -> None:
    object_ = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"nodeName": "n"}}
    patch = {"metadata": {"labels": {"a": None}}, "spec": {"nodeName": None, "absent": None}}
    assert strategic_merge_patch(object_, patch, POD) == {"metadata": {"labels": {"b": "2"}}, "spec": {}}


def test_null_in_new_values_is_left_out() -> None:
    patch = {"spec": {"securityContext": {"runAsUser": None, "runAsGroup": 1}}}
    assert strategic_merge_patch({"spec": {}}, patch, POD) == {"spec": {"securityContext": {"runAsGroup": 1}}}


def test_sets_of_scalars_are_united_and_can_lose_elements() -> None:
    object_ = {"metadata": {"finalizers": ["a", "b", "c"]}}
    united = strategic_merge_patch(object_, {"metadata": {"finalizers": ["d", "b"]}}, POD)
    assert sorted(united["metadata"]["finalizers"]) == ["a", "b", "c", "d"]
    less = strategic_merge_patch(object_, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "c", "x"]}}, POD)
    assert less == {"metadata": {"finalizers": ["b"]}}


def test_lists_without_a_strategy_are_replaced() -> None:
    object_ = containers(container("a", args=["1", "2"]), tolerations=[{"key": "x"}])
    patch = containers({"name": "a", "args": ["3"]}, tolerations=[])
    result = strategic_merge_patch(object_, patch, POD)
    assert result["spec"]["containers"][0]["args"] == ["3"]
    assert result["spec"]["tolerations"] == []


def test_order_is_what_the_patch_asks_for_with_others_in_between() -> None:
    object_ = containers(container("a"), container("server"), container("b"))
    patch = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert names(strategic_merge_patch(object_, patch, POD)) == ["server", "b", "a"]


def test_kubectls_patch_for_a_changed_an_added_and_a_deleted_container() -> None:
    object_ = containers(container("keep"), container("gone"), container("sidecar"))
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "keep"}, {"name": "new"}],
            "containers": [
                {"name": "keep", "image": "keep:2"},
                container("new"),
                {"$patch": "delete", "name": "gone"},
            ],
        }
    }
    result = strategic_merge_patch(object_, patch, POD)
    assert names(result) == ["keep", "sidecar", "new"]
    assert result["spec"]["containers"][0]["image"] == "keep:2"


def test_ports_merge_by_port() -> None:
    service = schema("", "v1", "Service")
    object_ = {"spec": {"ports": [{"port": 80, "targetPort": 1}, {"port": 443}]}}
    patch = {
        "spec": {"ports": [{"port": 80, "targetPort": 2}], "$setElementOrder/ports": [{"port": 443}, {"port": 80}]}
    }
    assert strategic_merge_patch(object_, patch, service) == {
        "spec": {"ports": [{"port": 443}, {"port": 80, "targetPort": 2}]}
    }


def test_retained_keys_clear_the_other_members_of_a_union() -> None:
    object_ = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge_patch(object_, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}
    volume = containers(volumes=[{"name": "v", "emptyDir": {}}])
    patch = {"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]}}
    assert strategic_merge_patch(volume, patch, POD)["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_directives_in_new_values_are_left_out() -> None:
    patch = {
        "spec": {"containers": [container("a"), {"$patch": "delete", "name": "b"}], "volumes": [{"$patch": "replace"}]}
    }
    result = strategic_merge_patch({"spec": {}}, patch, POD)
    assert result == {"spec": {"containers": [container("a")], "volumes": []}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 500, "does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "explode", "name": "a"}]}}, 500, "unknown patch type: explode"),
        ({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}, 500, "merging lists cannot yet be specified"),
        ({"spec": {"$patch": "merge"}}, 500, "unknown patch type: merge in map"),
        ({"spec": {"containers": ["a"]}}, 500, "list element types are not identical"),
        ({"spec": {"containers": [["a"]]}}, 422, "lists of lists are not supported"),
        ({"spec": {"$retainKeys": "x"}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, 400, "invalid patch format of retainKeys"),
        ({"spec": {"$setElementOrder/containers": "x"}}, 500, "expected a []interface {}, but received a string"),
        ({"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, 400, "invalid patch format of primitive list"),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]}},
            500,
            "doesn't match $setElementOrder list",
        ),
        ([], 400, "cannot unmarshal"),
        ("x", 400, "cannot unmarshal"),
    ],
)
def test_bad_patches_are_refused(patch: Any, code: int, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        strategic_merge_patch(containers(container("a")), patch, POD)
    assert caught.value.code == code
    assert message in str(caught.value)


def test_custom_resources_have_no_strategic_merge() -> None:
    with pytest.raises(PatchError, match="strategic merge patch format is not supported"):
        strategic_merge_patch({}, {}, builtin_schemas().from_structural({"type": "object"}))


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["a", "b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("spec", "containers", "name", "metadata", "labels", "finalizers", "$patch", "$retainKeys"),
                    *("$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "volumes"),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


few = settings(max_examples=40)


@few
@given(st.dictionaries(st.sampled_from(["spec", "metadata", "$patch"]), json_values), json_values)
def test_no_patch_does_worse_than_a_refusal(object_: dict[str, Any], patch: Any) -> None:
    before = copy.deepcopy((object_, patch))
    try:
        strategic_merge_patch(object_, patch, POD)
    except PatchError as error:
        assert error.code in (400, 422, 500)
    assert (object_, patch) == before
