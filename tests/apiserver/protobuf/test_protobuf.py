"""Bodies in Kubernetes' protobuf format, read into JSON values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from allot.apiserver.kinds.schemas import builtin_definitions
from allot.wire.kubernetes import Malformed, NotReadable, read
from allot.wire.kubernetes.decoding import DEPTH_MAX
from allot.wire.kubernetes.table import message_of, object_message
from allot.wire.kubernetes.wire import FIELDS_MAX
from apiserver.protobuf.encoding import MAGIC, META, enveloped, new, rows

_SCHEMA = "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def _read(api_version: str, kind: str, message: Any) -> dict[str, Any]:
    raw = message if isinstance(message, bytes) else message.SerializeToString()
    return read(enveloped(api_version, kind, raw))


def _refusal(body: bytes) -> str:
    with pytest.raises(Malformed) as refused:
        read(body)
    return str(refused.value)


# --- values ---


def test_what_go_sends_for_unset_fields_vanishes_as_it_does_in_json() -> None:
    pod: Any = new("core.v1.Pod")
    pod.f1.f1, pod.f1.f2, pod.f1.f7 = "p", "", 0
    pod.f1.f8.SetInParent()
    pod.f2.f11 = False
    container = pod.f2.f2.add()
    container.f1, container.f2, container.f18 = "c", "", False
    container.f8.SetInParent()
    pod.f3.SetInParent()
    assert _read("v1", "Pod", pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {}}]},
        "status": {},
    }


def test_zeros_behind_pointers_and_of_required_fields_stay() -> None:
    deployment: Any = new("apps.v1.Deployment")
    deployment.f2.f1 = 0
    deployment.f2.f3.f2.f2.add().f1 = ""
    assert _read("apps/v1", "Deployment", deployment)["spec"] == {
        "replicas": 0,
        "template": {"spec": {"containers": [{"name": ""}]}},
    }


def test_inline_messages_maps_bytes_and_negative_numbers_are_read() -> None:
    pod: Any = new("core.v1.Pod")
    volume = pod.f2.f1.add()
    volume.f1 = "v"
    volume.f2.f2.f1 = "Memory"
    pod.f1.f11["a"], pod.f1.f11["b"] = "1", ""
    pod.f2.f25 = -5
    told = _read("v1", "Pod", pod)
    # JSON has the list of containers even if there are none.
    assert told["spec"] == {
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "priority": -5,
        "containers": None,
    }
    assert told["metadata"]["labels"] == {"a": "1", "b": ""}
    secret: Any = new("core.v1.Secret")
    secret.f2["key"], secret.f2["empty"] = b"\xff\x00", b""
    assert _read("v1", "Secret", secret)["data"] == {"key": "/wA=", "empty": ""}


def test_quantities_and_numbers_or_texts_have_their_json_form() -> None:
    quota: Any = new("core.v1.ResourceQuota")
    quota.f2.f1["cpu"].f1 = "1500m"
    quota.f2.f1["pods"].SetInParent()
    assert _read("v1", "ResourceQuota", quota)["spec"]["hard"] == {"cpu": "1500m", "pods": "0"}
    service: Any = new("core.v1.Service")
    for type_, number, text in ((0, 8080, ""), (1, 0, "http"), (0, -1, "")):
        port = service.f2.f1.add()
        port.f4.f1, port.f4.f2, port.f4.f3 = type_, number, text
    ports = _read("v1", "Service", service)["spec"]["ports"]
    assert [port["targetPort"] for port in ports] == [8080, "http", -1]


@pytest.mark.parametrize(
    ("seconds", "nanos", "time", "micro_time"),
    [
        (0, 0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1763238600, 123456789, "2025-11-15T20:30:00Z", "2025-11-15T20:30:00.123456Z"),
        (-62135596799, 0, "0001-01-01T00:00:01Z", "0001-01-01T00:00:01.000000Z"),
        (253402300799, 999999999, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999999Z"),
        (-62135596800, 0, None, None),
        (None, None, None, None),
    ],
)
def test_times_are_told_as_kubernetes_prints_them(
    seconds: int | None, nanos: int | None, time: str | None, micro_time: str | None
) -> None:
    lease: Any = new("coordination.v1.Lease")
    for moment in (lease.f1.f8, lease.f2.f3):
        moment.SetInParent()
        if seconds is not None:
            moment.f1, moment.f2 = seconds, nanos
    told = _read("coordination.k8s.io/v1", "Lease", lease)
    assert told["metadata"].get("creationTimestamp") == time
    assert told["spec"].get("acquireTime") == micro_time


def test_embedded_json_and_lists_of_texts_are_read() -> None:
    device_class: Any = new("resource.v1.DeviceClass")
    device_class.f2.f2.add().f1.f1.f2.f1 = b'{"mode": ["a", 1]}'
    (config,) = _read("resource.k8s.io/v1", "DeviceClass", device_class)["spec"]["config"]
    assert config == {"opaque": {"parameters": {"mode": ["a", 1]}}}
    review: Any = new("authorization.v1.SubjectAccessReview")
    review.f2.f5["scopes"].f1.extend(["x", "y"])
    assert _read("authorization.k8s.io/v1", "SubjectAccessReview", review)["spec"]["extra"] == {"scopes": ["x", "y"]}
    owned: Any = new("core.v1.ConfigMap")
    owned.f1.f17.add().f7.f1 = b'{"f:data":{}}'
    assert _read("v1", "ConfigMap", owned)["metadata"]["managedFields"][0]["fieldsV1"] == {"f:data": {}}


def test_packed_and_single_numbers_are_the_same() -> None:
    groups = bytes([(4 << 3) | 2, 3, 1, 0x96, 1])  # supplementalGroups 1 and 150, packed
    one = bytes([4 << 3, 7])
    security = groups + one
    spec = bytes([(14 << 3) | 2, len(security)]) + security
    pod = bytes([(2 << 3) | 2, len(spec)]) + spec
    assert _read("v1", "Pod", pod)["spec"]["securityContext"]["supplementalGroups"] == [1, 150, 7]


def test_schemas_of_custom_resources_are_read() -> None:
    definition: Any = new("apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
    schema = definition.f2.f7.add().f4.f1
    schema.f5 = "object"
    names = {row[0]: f"f{number}" for number, row in rows()[_SCHEMA].items()}
    properties = getattr(schema, names["properties"])
    properties["list"].f5 = "array"
    getattr(properties["list"], names["items"]).f1.f5 = "string"
    getattr(properties["map"], names["additionalProperties"]).f1 = True
    getattr(properties["default"], names["default"]).f1 = b"5"
    told = _read("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition)
    told_properties = told["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert told_properties["list"] == {"type": "array", "items": {"type": "string"}}
    assert told_properties["map"] == {"additionalProperties": True}
    assert told_properties["default"] == {"default": 5}


def test_options_of_a_deletion_are_read_in_every_group() -> None:
    options: Any = new(f"{META}.DeleteOptions")
    options.f1, options.f4 = 0, "Foreground"
    options.f2.f1 = "uid"
    for version in ("v1", "apps/v1", "meta.k8s.io/v1", "example.com/v1"):
        assert _read(version, "DeleteOptions", options) == {
            "apiVersion": version,
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": "uid"},
        }


# --- refusals ---


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("example.com/v1", "Pod"),
        ("apps.example.com/v1", "Deployment"),
        ("v1", "Nothing"),
        ("v1", "Container"),
        ("meta.k8s.io/v1", "Time"),
        ("v2", "Pod"),
        ("/v1", "Verbs"),
    ],
)
def test_kinds_outside_the_table_are_not_readable(api_version: str, kind: str) -> None:
    with pytest.raises(NotReadable, match="is not read as protobuf"):
        read(enveloped(api_version, kind, b""))


def test_other_formats_inside_the_envelope_are_not_readable() -> None:
    for more in ({"encoding": "gzip"}, {"content_type": "application/json"}):
        with pytest.raises(NotReadable, match="another format"):
            read(enveloped("v1", "Pod", b"{}", **more))


def test_a_body_that_is_no_envelope_says_what_was_expected() -> None:
    prefix = "provided data does not appear to be a protobuf message, expected prefix [107, 56, 115, 0]"
    assert _refusal(b"") == _refusal(b"{}") == prefix
    assert _refusal(MAGIC) == "empty body"
    assert _refusal(enveloped("v1", "", b"")) == "Object 'Kind' is missing"
    assert _refusal(enveloped("", "Pod", b"")) == "Object 'apiVersion' is missing"
    assert "does not belong in the envelope" in _refusal(MAGIC + b"\x28\x01")
    assert "not UTF-8" in _refusal(MAGIC + b"\x0a\x04\x0a\x02\xff\xff")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\x0a\x02\x38\x80", "metadata: byte 20: ends in the middle of a number"),
        (b"\x0a\x05\x0a\x01a", "field 1 has 5 bytes, but only 3 are left"),
        (b"\x0a\x02\x08\x01", "metadata.name: has a number, expected a length and bytes"),
        (b"\x0a\x02\x3a\x00", "metadata.generation: has a length and bytes, expected a number"),
        (b"\x0a\x03\x0a\x01\xff", "text that is not UTF-8"),
        (b"\x0a\x06\x0a\x01a\x0a\x01b", "metadata.name: occurs twice"),
        (b"\x0a\x00\x0a\x00", "metadata: occurs twice"),
        (b"\x0a\x0c\x38" + b"\xff" * 10 + b"\x01", "a number of more than 64 bits"),
        (b"\x0a\x0b\x38" + b"\xff" * 9 + b"\x02", "a number of more than 64 bits"),
        (b"\x0b", "has wire type 3, expected 0, 1, 2 or 5"),
        (b"\x02\x00", "field number 0 is not between"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "is not between 1 and 536870911"),
        (b"\xf8\x07\x01", "field 127 of Pod is unknown in the version of Kubernetes that is served"),
    ],
)
def test_malformed_messages_are_refused_with_the_place(raw: bytes, reason: str) -> None:
    told = _refusal(enveloped("v1", "Pod", raw))
    assert reason in told
    assert told.startswith('Pod in version "v1" cannot be handled as a Pod: protobuf: ')


@pytest.mark.parametrize(
    ("seconds", "nanos", "reason"),
    [
        (2**60, 0, "1152921504606846976 seconds since 1970 are not between the years 1 and 9999"),
        (-(2**63), 0, "-9223372036854775808 seconds since 1970 are not between the years 1 and 9999"),
        (0, 10**9, "1000000000 nanoseconds are not between 0 and a second"),
        (0, -1, "-1 nanoseconds are not between 0 and a second"),
    ],
)
def test_impossible_times_are_refused(seconds: int, nanos: int, reason: str) -> None:
    pod: Any = new("core.v1.Pod")
    pod.f1.f8.f1, pod.f1.f8.f2 = seconds, nanos
    assert f"metadata.creationTimestamp: {reason}" in _refusal(enveloped("v1", "Pod", pod.SerializeToString()))


def test_a_choice_that_is_neither_number_nor_text_is_refused() -> None:
    service: Any = new("core.v1.Service")
    service.f2.f1.add().f4.f1 = 2
    told = _refusal(enveloped("v1", "Service", service.SerializeToString()))
    assert "spec.ports.targetPort: has type 2, expected 0 (number) or 1 (text)" in told


def test_unknown_fields_that_are_empty_are_no_loss() -> None:
    assert _read("v1", "Pod", b"\xf8\x07\x00\xfa\x07\x00") == {"apiVersion": "v1", "kind": "Pod"}


def test_embedded_json_is_checked() -> None:
    def body(raw: bytes) -> bytes:
        revision: Any = new("apps.v1.ControllerRevision")
        revision.f2.f1 = raw
        return enveloped("apps/v1", "ControllerRevision", revision.SerializeToString())

    for raw in (b"{", b"\xff", b"[" * 100_000, b"[" * 1000 + b"]" * 1000, MAGIC + b"\x0a\x00"):
        assert "data: embedded JSON: " in _refusal(body(raw))
    assert "data" not in read(body(b""))


@pytest.mark.slow
def test_too_many_fields_are_refused() -> None:
    spec = b"\x12\x00" * (FIELDS_MAX + 1)  # empty containers
    length = len(spec)
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    assert f"too large: expected at most {FIELDS_MAX} fields" in _refusal(
        enveloped("v1", "Pod", b"\x12" + varint + spec)
    )


def test_deep_nesting_is_refused() -> None:
    number = next(int(number) for number, row in rows()[_SCHEMA].items() if row[0] == "not")
    schema: Any = new(_SCHEMA)
    schema.f5 = "object"
    for _ in range(DEPTH_MAX + 10):
        outer: Any = new(_SCHEMA)
        getattr(outer, f"f{number}").CopyFrom(schema)
        schema = outer
    definition: Any = new("apiextensions_apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
    definition.f2.f7.add().f4.f1.CopyFrom(schema)
    raw = definition.SerializeToString()
    assert "nested too deeply" in _refusal(enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", raw))


# --- the table ---


def test_the_table_has_every_field_of_every_schema() -> None:
    def names(message: str) -> set[str]:
        fields = message_of(message).fields.values()
        inline = set().union(*(names(field.type_) for field in fields if field.inline))
        return inline | {field.name for field in fields if not field.inline}

    compared = 0
    for name, definition in builtin_definitions().items():
        message = name.removeprefix("io.k8s.").removeprefix("api.").replace("-", "_")
        if "properties" not in definition or message not in rows():
            continue
        compared += 1
        type_meta = {"apiVersion", "kind"}
        assert names(message) - type_meta == set(definition["properties"]) - type_meta, message
    assert compared > 800


def test_every_kind_that_can_be_stored_is_readable() -> None:
    unreadable = set()
    for definition in builtin_definitions().values():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            version = f"{kind['group']}/{kind['version']}".removeprefix("/")
            has_metadata = "metadata" in definition.get("properties", {})
            if has_metadata and object_message(version, kind["kind"]) is None:
                unreadable.add(kind["kind"])
    assert unreadable == {"Status"}


# --- laws ---

_KINDS = [("v1", "Pod"), ("apps/v1", "Deployment"), ("resource.k8s.io/v1", "ResourceSlice"), ("v1", "DeleteOptions")]


@settings(max_examples=300)
@given(st.sampled_from(_KINDS), st.binary(max_size=200))
@example(("v1", "Pod"), b"\x0a" * 100)
def test_random_bytes_are_read_or_refused(kind: tuple[str, str], raw: bytes) -> None:
    try:
        told = read(enveloped(*kind, raw))
    except Malformed:
        return
    assert told["kind"] == kind[1]


@settings(max_examples=300)
@given(st.binary(max_size=100))
def test_random_envelopes_are_read_or_refused(data: bytes) -> None:
    try:
        read(MAGIC + data)
    except (Malformed, NotReadable):
        pass


@st.composite
def _filled(draw: st.DrawFn, name: str, depth: int = 0) -> tuple[Any, Any]:
    """A message and the JSON value that it stands for, of scalars, lists, maps of texts and messages."""
    message: Any = new(name)
    told: dict[str, Any] = {}
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "s": st.text(min_size=1, max_size=5),
        "i": st.integers(-(2**63), 2**63 - 1).filter(bool),
        "?": st.just(True),
    }
    for number, (field, type_, flags) in rows()[name].items():
        if "r" in flags and "o" not in flags:
            told[field] = None
        if not draw(st.booleans()) or "l" in flags:
            continue
        place = f"f{number}"
        if type_ == "<s>":
            value = draw(st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=3))
            getattr(message, place).update(value)
        elif type_ in scalars and "r" in flags:
            value = draw(st.lists(scalars[type_], min_size=1, max_size=3))
            getattr(message, place).extend(value)
        elif type_ in scalars:
            value = draw(scalars[type_])
            setattr(message, place, value)
        elif type_.startswith("core.v1.") and "r" not in flags and depth < 3:
            inner, value = draw(_filled(type_, depth + 1))
            getattr(message, place).CopyFrom(inner)
        else:
            continue
        told[field] = value
    return message, told


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(["core.v1.PodSpec", "core.v1.NodeStatus", "core.v1.ServiceSpec"]).flatmap(_filled))
def test_what_another_encoder_writes_is_read_back(filled: tuple[Any, Any]) -> None:
    message, told = filled
    name = message.DESCRIPTOR.name
    owner, place = {"PodSpec": ("Pod", 2), "NodeStatus": ("Node", 3), "ServiceSpec": ("Service", 2)}[
        name.split("_")[-1]
    ]
    outer: Any = new(f"core.v1.{owner}")
    getattr(outer, f"f{place}").CopyFrom(message)
    assert _read("v1", owner, outer)["status" if place == 3 else "spec"] == told
