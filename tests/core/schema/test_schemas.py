"""Schemas: kinds, shapes of nodes, and custom resources beside built-in ones."""

from __future__ import annotations

import pytest

from allot.apiserver.kinds.schemas import builtin_definitions, builtin_schemas
from allot.core.schema import Kind, Schema, Schemas, Shape


def pod() -> Schema:
    schema = builtin_schemas().for_kind("", "v1", "Pod")
    assert schema is not None
    return schema


def node(schema: Schema, *names: str) -> Schema:
    for name in names:
        below = schema.items if name == "[]" else schema.member(name)
        assert below is not None, f"{schema} has no {name}"
        schema = below
    return schema


def test_every_built_in_kind_has_a_schema_that_can_be_walked() -> None:
    schemas = builtin_schemas()
    kinds = list(schemas.kinds())
    assert len(kinds) > 150
    for group, version, kind in kinds:
        schema = schemas.for_kind(group, version, kind)
        assert schema is not None
        assert isinstance(schema.shape, Shape)


def test_an_unknown_kind_has_none() -> None:
    assert builtin_schemas().for_kind("apps", "v1", "Nothing") is None
    assert builtin_schemas().name_of_kind("apps", "v1", "Deployment") == "io.k8s.api.apps.v1.Deployment"


def test_plain_references_share_one_node() -> None:
    schemas = builtin_schemas()
    deployment = schemas.for_kind("apps", "v1", "Deployment")
    assert deployment is not None
    assert node(deployment, "spec", "template", "spec", "containers", "[]") is node(pod(), "spec", "containers", "[]")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (("spec",), Kind.OBJECT),
        (("metadata", "labels"), Kind.MAP),
        (("metadata", "creationTimestamp"), Kind.TIME),
        (("metadata", "managedFields", "[]", "fieldsV1"), Kind.MAP),
        (("spec", "hostNetwork"), Kind.BOOLEAN),
        (("spec", "containers"), Kind.LIST),
        (("spec", "containers", "[]", "resources", "limits", "cpu"), Kind.QUANTITY),
        (("spec", "containers", "[]", "livenessProbe", "httpGet", "port"), Kind.INT_OR_STRING),
        (("spec", "activeDeadlineSeconds"), Kind.INTEGER),
    ],
)
def test_nodes_know_what_their_value_is(path: tuple[str, ...], kind: Kind) -> None:
    assert node(pod(), *path).kind is kind


@pytest.mark.parametrize(
    ("path", "shape", "keys"),
    [
        (("spec", "containers"), Shape.LIST_MAP, ("name",)),
        (("spec", "containers", "[]", "ports"), Shape.LIST_MAP, ("containerPort", "protocol")),
        (("metadata", "finalizers"), Shape.LIST_SET, ()),
        (("metadata", "ownerReferences"), Shape.LIST_MAP, ("uid",)),
        (("metadata", "ownerReferences", "[]"), Shape.LEAF, ()),
        (("spec", "tolerations"), Shape.LEAF, ()),
        (("spec", "nodeSelector"), Shape.LEAF, ()),
        (("metadata", "labels"), Shape.MAPPING, ()),
    ],
)
def test_nodes_know_how_ownership_sees_their_value(path: tuple[str, ...], shape: Shape, keys: tuple[str, ...]) -> None:
    found = node(pod(), *path)
    assert found.shape is shape
    assert found.map_keys == keys


def test_keys_of_lists_have_their_defaults() -> None:
    assert node(pod(), "spec", "containers", "[]", "ports").key_defaults == {"protocol": "TCP"}
    service = builtin_schemas().for_kind("", "v1", "Service")
    assert service is not None
    assert node(service, "spec", "ports").key_defaults == {"protocol": "TCP"}


def test_strategies_of_patches_come_from_the_field_and_not_from_its_type() -> None:
    assert node(pod(), "spec", "volumes").patch_strategies == ("merge", "retainKeys")
    assert node(pod(), "spec", "volumes").merge_key == "name"
    deployment = builtin_schemas().for_kind("apps", "v1", "Deployment")
    assert deployment is not None
    strategy = node(deployment, "spec", "strategy")
    assert strategy.patch_strategies == ("retainKeys",)
    assert strategy.name == "DeploymentStrategy"


def test_raw_extensions_are_one_thing_and_json_is_not() -> None:
    slices = builtin_schemas().for_kind("resource.k8s.io", "v1", "ResourceClaim")
    assert slices is not None
    parameters = node(slices, "spec", "devices", "config", "[]", "opaque", "parameters")
    assert parameters.kind is Kind.ANY
    assert parameters.shape is Shape.LEAF


def test_definitions_may_contain_themselves() -> None:
    crd = builtin_schemas().for_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert crd is not None
    schema = node(crd, "spec", "versions", "[]", "schema", "openAPIV3Schema")
    assert node(schema, "properties", "x", "properties", "y") is node(schema, "properties", "x")


def test_a_missing_definition_allows_everything() -> None:
    schemas = Schemas({"Root": {"type": "object", "properties": {"gone": {"$ref": "#/$defs/Gone"}}}})
    assert node(schemas.named("Root"), "gone").kind is Kind.ANY


def test_custom_resources_get_the_members_that_every_object_has() -> None:
    schema = builtin_schemas().from_structural(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    )
    assert node(schema, "metadata", "labels").kind is Kind.MAP
    assert node(schema, "apiVersion").kind is Kind.STRING
    assert node(schema, "spec", "size").structural
    assert not node(schema, "metadata").structural


def test_a_node_below_preserved_fields_tolerates_unknown_ones() -> None:
    schema = builtin_schemas().from_structural(
        {
            "type": "object",
            "properties": {
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"in": {"type": "object", "properties": {"a": {"type": "string"}}}},
                },
            },
        }
    )
    assert node(schema, "free").preserve_unknown
    assert node(schema, "free", "in").tolerant
    assert not node(schema, "free", "in").preserve_unknown


def test_the_newest_definitions_are_read() -> None:
    assert "io.k8s.api.resource.v1.ResourceSlice" in builtin_definitions()
