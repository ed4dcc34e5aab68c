"""Objects of every kind come in from JSON and go out again without loss."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.model.codec import (
    DecodeError,
    decode,
    decode_json,
    decode_object,
    decode_served,
    encode,
    encode_envelope,
)
from allot.core.model.convert import ConversionError
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.kinds import UnknownKind
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import (
    ResourceClaim,
)

from .documents import api_documents, claim, refused_objects


def test_every_example_is_known_to_the_last_field() -> None:
    for document in api_documents():
        envelope = decode_object(document, strict=True)
        assert envelope.warnings == (), document["metadata"]


def test_every_example_survives_a_round_trip_and_stays_the_same_from_then_on() -> None:
    for document in api_documents():
        envelope = decode_object(document)
        written = encode_envelope(envelope)
        again = decode_object(written)
        assert again.object == envelope.object
        assert encode_envelope(again) == written


def test_the_quick_way_and_the_careful_way_agree_on_every_example() -> None:
    for document in api_documents():
        envelope = decode_object(document)
        text = msgspec.json.encode(encode(envelope.object))
        assert decode_json(text, envelope.kind.type).object == envelope.object
        assert decode_served(encode(envelope.object), envelope.kind.type) == envelope.object


def test_every_object_that_only_validation_refuses_decodes() -> None:
    for value in refused_objects():
        assert decode_object(value, strict=True).warnings == ()


def test_no_example_loses_a_value() -> None:
    for document in api_documents():
        envelope = decode_object(document)
        if envelope.api_version not in envelope.kind.api_versions:
            continue
        assert _lost(document, encode_envelope(envelope, envelope.api_version)) == [], document["metadata"]


def _lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Paths of values that are gone or different; empty ones and the spelling of numbers do not count."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [found for key, item in before.items() for found in _lost(item, after.get(key), f"{path}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            found
            for index, (item, other) in enumerate(zip(before, after, strict=True))
            for found in _lost(item, other, f"{path}[{index}]")
        ]
    return [] if not before or before == after or str(before) == after else [path]


def test_an_object_needs_a_known_api_version_and_kind() -> None:
    with pytest.raises(DecodeError, match="apiVersion: expected the apiVersion of an object"):
        decode_object({"kind": "Pod"})
    with pytest.raises(DecodeError, match="kind: expected the kind of an object, got number 5"):
        decode_object({"apiVersion": "v1", "kind": 5})
    with pytest.raises(UnknownKind, match="unknown kind 'Deployment' in apiVersion 'apps/v1': expected one of"):
        decode_object({"apiVersion": "apps/v1", "kind": "Deployment"})
    with pytest.raises(UnknownKind, match=r"kind 'ResourceClaim' has no version 'v1': expected resource\.k8s\.io/v1"):
        decode_object({"apiVersion": "v1", "kind": "ResourceClaim"})


def test_errors_name_the_object() -> None:
    with pytest.raises(DecodeError, match=r"^ResourceClaim default/c: spec\.devices\.requests\[0\]\.exactly\.count: "):
        decode_object(claim(count="x"))
    with pytest.raises(DecodeError, match=r"^ResourceClaim default/c: strict decoding error"):
        decode_object(claim(x="x"), strict=True)


def test_older_versions_are_converted_and_keep_their_version_in_mind() -> None:
    value = claim()
    value["apiVersion"] = "resource.k8s.io/v1beta1"
    value["spec"]["devices"]["requests"] = [{"name": "gpu", "deviceClassName": "gpu", "exactly": {}}]
    envelope = decode_object(value)
    assert envelope.object == decode(claim(), ResourceClaim).object
    assert envelope.api_version == "resource.k8s.io/v1beta1"
    assert envelope.unknown_fields == ("spec.devices.requests[0].exactly",)
    assert encode_envelope(envelope)["apiVersion"] == "resource.k8s.io/v1"
    assert encode_envelope(envelope, envelope.api_version)["spec"]["devices"]["requests"] == [
        {"name": "gpu", "deviceClassName": "gpu"}
    ]


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {
        "hostNetwork": True,
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeName": "",
        "containers": [
            {"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}], "resources": {"claims": [{"name": "c"}]}},
            {"name": "b", "image": "y", "command": ["run"], "resources": {}},
        ],
        "affinity": {"podAffinity": {}, "nodeAffinity": {}},
    },
    "status": {
        "podIP": "10.0.0.1",
        "containerStatuses": [{"name": "a", "ready": True, "restartCount": 0, "image": "x"}],
    },
}


def test_fields_of_a_pod_that_core_does_not_know_are_neither_reported_nor_lost() -> None:
    envelope = decode_object(POD, strict=True)
    assert encode_envelope(envelope) == POD


def test_a_changed_pod_keeps_what_core_does_not_know() -> None:
    envelope = decode_object(POD)
    pod = envelope.object
    assert isinstance(pod, Pod)
    first, second = pod.spec.containers
    spec = msgspec.structs.replace(
        pod.spec, node_name="n1", affinity=None, containers=(second, msgspec.structs.replace(first, image="z"))
    )
    changed = msgspec.structs.replace(envelope, object=msgspec.structs.replace(pod, spec=spec))
    expected = copy.deepcopy(POD)
    expected["spec"]["nodeName"] = "n1"
    del expected["spec"]["affinity"]
    expected["spec"]["containers"][0]["image"] = "z"
    expected["spec"]["containers"].reverse()
    assert encode_envelope(changed) == expected


def test_a_new_container_is_written_as_it_is() -> None:
    envelope = decode_object(POD)
    pod = envelope.object
    assert isinstance(pod, Pod)
    added = msgspec.structs.replace(pod.spec.containers[0], name="c", image="new")
    spec = msgspec.structs.replace(pod.spec, containers=(added,))
    changed = msgspec.structs.replace(envelope, object=msgspec.structs.replace(pod, spec=spec))
    assert encode_envelope(changed)["spec"]["containers"] == [
        {"name": "c", "image": "new", "resources": {"claims": [{"name": "c"}]}}
    ]


def test_input_is_never_changed() -> None:
    before = copy.deepcopy(POD)
    encode_envelope(decode_object(POD))
    assert before == POD


def test_the_quick_way_reads_kinds_that_are_known_in_part() -> None:
    decoded = decode_json(b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"spec":{"podCIDR":"x"}}', Node)
    assert decoded.object == Node(metadata=ObjectMeta(name="n"))
    assert decoded.unknown_fields == ()


def test_what_a_server_of_another_age_sends_is_read_carefully() -> None:
    value = {"metadata": {"name": "n", "creationTimestamp": "2026-01-02T03:04:05.600Z", "newField": 1}}
    read = decode_served({"apiVersion": "v1", "kind": "Node", **value}, Node)
    assert read.metadata == ObjectMeta(name="n", creation_timestamp="2026-01-02T03:04:05Z")


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["1Gi", "1e99999"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def with_value(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    twin = copy.copy(value)
    twin[path[0]] = with_value(value[path[0]], path[1:], new)
    return twin


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_a_damaged_object_is_decoded_or_refused_with_a_known_error(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from(api_documents()))
    place = data.draw(st.sampled_from(places(document)))
    damaged = with_value(document, place, data.draw(json_values))
    try:
        envelope = decode_object(damaged)
    except (DecodeError, UnknownKind, ConversionError) as error:
        assert str(error)
        return
    msgspec.json.encode(encode_envelope(envelope))
