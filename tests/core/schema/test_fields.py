"""Strict decoding: unknown fields, duplicates and wrong types."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.model.codec import parse_json
from allot.core.schema import Schema, check_fields, prune


def schema(group: str, version: str, kind: str) -> Schema:
    found = builtin_schemas().for_kind(group, version, kind)
    assert found is not None
    return found


POD = schema("", "v1", "Pod")


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_a_good_object_has_nothing_to_report() -> None:
    report = check_fields(pod(containers=[{"name": "c", "image": "i"}]), POD)
    assert (report.unknown, report.duplicates, report.wrong, report.untidy) == ((), (), (), False)
    assert report.strict_errors == ()


def test_unknown_fields_are_told_by_path_in_the_order_of_the_document() -> None:
    object_ = pod(containers=[{"name": "c"}, {"name": "d", "imagee": "i"}], foo={"bar": 1})
    object_["statuss"] = {}
    report = check_fields(object_, POD)
    assert report.unknown == ("spec.containers[1].imagee", "spec.foo", "statuss")
    assert report.strict_errors[0] == 'unknown field "spec.containers[1].imagee"'
    assert report.untidy


def test_keys_of_maps_follow_a_dot() -> None:
    crd = schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    value = {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"typ": "x"}}}}}]}}
    assert check_fields(value, crd).unknown == ("spec.versions[0].schema.openAPIV3Schema.properties.a.typ",)


def test_duplicate_fields_are_told() -> None:
    object_ = parse_json(b'{"metadata": {"name": "a", "name": "b", "labels": {"x": "1", "x": "2"}}}')
    assert check_fields(object_, POD).strict_errors == (
        'duplicate field "metadata.name"',
        'duplicate field "metadata.labels.x"',
    )


def test_duplicates_inside_free_form_values_are_told() -> None:
    claim = schema("resource.k8s.io", "v1", "ResourceClaim")
    text = b'{"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"a": 1, "a": 2}}}]}}}'
    assert check_fields(parse_json(text), claim).duplicates == ("spec.devices.config[0].opaque.parameters.a",)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"containers": [{"name": 1}]},
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            {"containers": {}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"hostNetwork": "yes"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            {"priority": 2**31},
            "json: cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            {"terminationGracePeriodSeconds": 1.5},
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            {"nodeSelector": {"a": True}},
            "json: cannot unmarshal bool into Go struct field PodSpec.spec.nodeSelector of type string",
        ),
        (
            {"overhead": {"cpu": "many"}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            {"containers": [{"livenessProbe": {"httpGet": {"port": []}}}]},
            "json: cannot unmarshal array into Go value of type int32",
        ),
    ],
)
def test_values_of_a_wrong_type_are_told_as_go_tells_them(spec: dict[str, Any], text: str) -> None:
    assert check_fields(pod(**spec), POD).wrong == (text,)


def test_times_and_bytes_have_words_of_their_own() -> None:
    object_ = {"metadata": {"creationTimestamp": "soon"}, "data": {"a": "&&&"}}
    assert check_fields(object_, schema("", "v1", "Secret")).wrong == (
        'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"',
        "illegal base64 data at input byte 0",
    )


def test_something_that_is_no_object_is_told() -> None:
    assert check_fields([], POD).wrong == ("json: cannot unmarshal array into Go value of type v1.Pod",)
    assert check_fields("x", POD).wrong == ("json: cannot unmarshal string into Go value of type v1.Pod",)


def test_quantities_may_be_numbers() -> None:
    assert check_fields(pod(overhead={"cpu": 1, "memory": "1e3", "x": "1.5Gi"}), POD).wrong == ()


def test_null_is_no_value_of_a_wrong_type() -> None:
    report = check_fields(pod(containers=None, hostNetwork=None), POD)
    assert report.wrong == ()
    assert report.untidy


def test_nesting_is_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"not": deep}
    crd = schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    object_ = {"spec": {"versions": [{"schema": {"openAPIV3Schema": deep}}]}}
    assert check_fields(object_, crd).wrong[0].startswith("nested too deeply")
    prune(object_, crd)


def test_reports_are_bounded() -> None:
    report = check_fields({f"x{index}": 1 for index in range(10_000)}, POD)
    assert len(report.unknown) == 100


def test_unknown_fields_of_custom_resources_are_sorted_and_types_left_to_validation() -> None:
    custom = builtin_schemas().from_structural(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    )
    report = check_fields({"spec": {"size": "large", "b": 1, "a": 1}, "metadata": {"name": "x", "zone": 1}}, custom)
    assert report.unknown == ("metadata.zone", "spec.a", "spec.b")
    assert report.wrong == ()


@pytest.mark.parametrize(
    "text",
    [
        b'{"spec":{"containers":[{"name":"c","image":"i"}]}}',
        b'{"spec":{"containers":[{"name":"c","image":"i","imgae":"j"}]}}',
        b'{"spec":{"containers":[{"name":"c","image":1}]}}',
        b'{"spec":{"containers":[{"name":"c","image":null}]}}',
        b'{"spec":{"containers":[{"name":"c","image":"i"}],"volumes":[]}}',
        b'{"spec":{"containers":[{"name":"c","image":"i"}]},"spce":{}}',
        b'{"metadata":{"name":1},"spec":{"containers":[{"name":"c","image":"i"}]}}',
        b'{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{}},"when":"now"}]}}',
        b'{"spec":{"terminationGracePeriodSeconds":1,"containers":[]}}',
        b'{"spec":{"terminationGracePeriodSeconds":1.0,"containers":[]}}',
        b'{"spec":{"terminationGracePeriodSeconds":true,"containers":[]}}',
        b'{"spec":{"volumes":[{"name":"kube-api-access-abcde"},{"name":"kube-api-access-fghij"}]}}',
        b'{"spec":{"volumes":[{"name":"kube-api-access-abcde","kube-api-access-fghij":{}}]}}',
        b'{"spec":{"volumes":[{"name":"kube-api-access-abcde","kube-api-access-":{}}]}}',
    ],
)
def test_parts_that_were_seen_before_are_judged_as_the_first_time(text: bytes) -> None:
    node = schema("", "v1", "Pod")
    for clean in (b'{"containers":[{"name":"c","image":"i"}]}', b'{"terminationGracePeriodSeconds":1,"containers":[]}'):
        check_fields(parse_json(b'{"spec":' + clean + b"}"), node, no_duplicates=True)
    expected = check_fields(parse_json(text), node)
    assert [check_fields(parse_json(text), node, no_duplicates=True) for _ in range(2)] == [expected] * 2


def test_text_with_duplicates_anywhere_is_marked_outside() -> None:
    nested = parse_json(b'{"spec":{"containers":[{"name":"c","image":"i","image":"i"}]}}')
    assert type(nested) is not dict
    assert check_fields(nested, schema("", "v1", "Pod")).duplicates == ("spec.containers[0].image",)
    assert type(parse_json(b'{"spec":{"nodeName":"\\u0061"}}')) is dict


def test_what_is_remembered_of_clean_parts_is_bounded() -> None:
    node = schema("", "v1", "ConfigMap")
    for number in range(1000):
        check_fields({"data": {"number": str(number)}}, node, no_duplicates=True)
    assert len(node.properties["data"].clean_values) <= 256
