"""A node of a schema: what one value may look like, how it merges, and the granularity of its ownership.

A node is made from raw OpenAPI, or from a structural schema, and reads it when the first attribute is asked for: an API
server knows some hundred kinds of which a process touches a few. Nodes never change after that and are shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allot.core.schema.schemas import Schemas

Raw = Mapping[str, Any]

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_FIELDS_V1 = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"

# Defaults of fields that are keys of lists. The definitions that we get have lost them; Kubernetes v1.37.0-rc.1 has them in
# its types (core/v1 types.go, +default), and no other key of a list has one.
_KEY_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "io.k8s.api.core.v1.ContainerPort": {"protocol": "TCP"},
    "io.k8s.api.core.v1.ServicePort": {"protocol": "TCP"},
}

# Optional lists in which empty is not the same as absent: the default is for a list that was not given (Kubernetes
# v1.37.0-rc.1, autoscaling/v2 defaults.go; no other default asks whether a list or a map is nil rather than empty).
_KEPT_EMPTY: Mapping[str, frozenset[str]] = {"HPAScalingRules": frozenset({"policies"})}

# Optional objects that exist in every object because their Go field is a struct and not a pointer, by the name of the
# field. No one owns such an object as a whole. Exceptions have a pointer there.
_ALWAYS_THERE = frozenset(
    {
        *("metadata", "spec", "status", "template", "strategy", "updateStrategy", "devices", "resources", "source"),
        *("jobTemplate", "schedulingPolicy", "regarding", "deprecatedSource", "involvedObject", "nodeInfo", "names"),
        *("daemonEndpoints", "kubeletEndpoint", "limitResponse", "loadBalancer", "acceptedNames", "state", "lastState"),
    }
)
_NOT_ALWAYS_THERE = frozenset({("PodSpec", "resources"), ("ReplicationControllerSpec", "template")})


class Kind(Enum):
    """What a value is."""

    OBJECT = "object"
    MAP = "map"
    LIST = "list"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    TIME = "time"
    MICRO_TIME = "microtime"
    QUANTITY = "quantity"
    INT_OR_STRING = "int-or-string"
    ANY = "any"


class Shape(IntEnum):
    """How ownership and merging see a value: one thing, or something with parts."""

    LEAF = 0
    MAPPING = 1
    LIST_MAP = 2
    LIST_SET = 3
    # Leaf, mapping or list by what the value is; a list of unknown elements is one thing.
    DEDUCED = 4


class Schema:
    """A node. Attributes are read-only."""

    __slots__ = (
        "_raw",
        "_schemas",
        "added_plans",
        "additional",
        "always_there",
        "atomic",
        "clean_values",
        "default",
        "definition",
        "elements",
        "embedded_resource",
        "fields",
        "format",
        "has_default",
        "items",
        "kept_empty",
        "key_defaults",
        "kind",
        "list_type",
        "map_keys",
        "merge_key",
        "name",
        "nullable",
        "patch_strategies",
        "plans",
        "preserve_unknown",
        "properties",
        "required",
        "shape",
        "structural",
        "tolerant",
    )

    # The definition that it is made from, as "io.k8s.api.core.v1.PodSpec"; empty if it has no name of its own.
    definition: str
    # The last part of it: "PodSpec".
    name: str
    kind: Kind
    format: str
    # Made from a custom resource's schema: types are JSON's, null counts, unknown fields may be kept.
    structural: bool
    nullable: bool
    has_default: bool
    default: Any

    # Objects and maps.
    properties: Mapping[str, Schema]
    required: frozenset[str]
    # Members that stay when they are empty lists or maps; other built-in ones are lost as if they were absent.
    kept_empty: frozenset[str]
    # What members that are not properties look like; None if there are none, or if they are unknown fields.
    additional: Schema | None
    preserve_unknown: bool
    embedded_resource: bool
    # In Go a struct, so that the object is there even if nothing in it is set.
    always_there: bool

    # Lists.
    items: Schema | None
    list_type: str
    map_keys: tuple[str, ...]
    key_defaults: Mapping[str, Any]

    # Patches.
    merge_key: str
    patch_strategies: tuple[str, ...]

    # Ownership.
    shape: Shape
    atomic: bool
    # Property -> (element of a path, node): "spec" -> ("f:spec", ...).
    fields: Mapping[str, tuple[str, Schema]]
    # What members that are not properties are owned as; None if such a member is an error.
    elements: Schema | None
    # Unknown fields are no error in this node or below, because a node above keeps them.
    tolerant: bool
    # Kept here for `core.patching`: how to get from the names of an object's members to the fields that it has.
    plans: dict[tuple[str, ...], Any]
    added_plans: dict[tuple[str, ...], Any]
    # Kept here for `fields`: values, as JSON, in which nothing was found.
    clean_values: dict[bytes, None]

    def __init__(self, raw: Raw, schemas: Schemas, definition: str, structural: bool, tolerant: bool = False) -> None:
        self._raw = raw
        self._schemas = schemas
        self.plans = {}
        self.added_plans = {}
        self.clean_values = {}
        self.definition = definition
        self.name = definition.rpartition(".")[2]
        self.structural = structural
        self.tolerant = tolerant or raw.get("x-kubernetes-preserve-unknown-fields") is True

    def __getattr__(self, name: str) -> Any:
        # Called for slots that are empty: the first look at the node fills all of them.
        if name.startswith("_") or name not in Schema.__slots__:
            raise AttributeError(name)
        self._read()
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        return f"Schema({self.definition or self.kind.value})"

    def member(self, name: str) -> Schema | None:
        """The node of a member of an object or map; None if it may not have such a member."""
        found = self.properties.get(name)
        return found if found is not None else self.additional

    def _read(self) -> None:
        # Two threads may do this at once: every slot is set once and to what it stays, so that neither sees anything else.
        raw = self._raw
        self.kind = _kind(raw, self.definition, self.structural)
        self.format = str(raw.get("format", ""))
        self.nullable = raw.get("nullable") is True or not self.structural
        self.has_default = "default" in raw
        self.default = raw.get("default")
        self.preserve_unknown = raw.get("x-kubernetes-preserve-unknown-fields") is True
        self.embedded_resource = raw.get("x-kubernetes-embedded-resource") is True
        self.merge_key = str(raw.get("x-kubernetes-patch-merge-key", ""))
        strategies = raw.get("x-kubernetes-patch-strategy", "")
        self.patch_strategies = tuple(filter(None, strategies.split(","))) if isinstance(strategies, str) else ()
        self.always_there = raw.get(ALWAYS_THERE) is True
        self.atomic = raw.get("x-kubernetes-map-type") == "atomic" or self.definition == _RAW_EXTENSION
        self._read_members(raw)
        self._read_items(raw)
        self.shape = self._shape()

    def _read_members(self, raw: Raw) -> None:
        self.properties = self._properties(raw) if self.kind in (Kind.OBJECT, Kind.ANY) else {}
        required = raw.get("required")
        self.required = frozenset(map(str, required)) if isinstance(required, list) else frozenset()
        self.kept_empty = self.required | _KEPT_EMPTY.get(self.name, frozenset())
        additional = raw.get("additionalProperties")
        node = None
        if isinstance(additional, Mapping):
            node = self._schemas.node(additional, self.structural, self.tolerant)
        elif additional is True or self.definition == _FIELDS_V1:
            node = self._schemas.any
        self.additional = elements = node
        if elements is None and (self.tolerant or not self.properties):
            elements = self._schemas.any
        self.elements = elements
        self.fields = {name: (f"f:{name}", node) for name, node in self.properties.items()}

    def _properties(self, raw: Raw) -> dict[str, Schema]:
        members = raw.get("properties")
        properties = {}
        if isinstance(members, Mapping):
            for name, member in members.items():
                if isinstance(member, Mapping):
                    properties[name] = self._schemas.node(self._marked(name, member), self.structural, self.tolerant)
        if self.embedded_resource or raw.get(ROOT) is True:
            properties |= self._schemas.object_properties()
        return properties

    def _marked(self, name: str, member: Raw) -> Raw:
        """The member, marked if it is an object that is always there."""
        if self.structural or not self._is_object(member):
            return member
        required = self._raw.get("required") or ()
        there = name in _ALWAYS_THERE and (self.name, name) not in _NOT_ALWAYS_THERE
        return {**member, ALWAYS_THERE: True} if there or name in required else member

    def _is_object(self, member: Raw) -> bool:
        reference = member.get("$ref")
        target = self._schemas.definition(reference) if isinstance(reference, str) else member
        return "properties" in target

    def _read_items(self, raw: Raw) -> None:
        if self.kind is not Kind.LIST:
            self.items = None
            self.list_type, self.map_keys, self.key_defaults = "", (), {}
            return
        items = raw.get("items")
        node = (
            self._schemas.node(items, self.structural, self.tolerant)
            if isinstance(items, Mapping)
            else self._schemas.any
        )
        self.items = node
        self.list_type, map_keys = _list_type(raw)
        self.map_keys = map_keys
        defaults = _KEY_DEFAULTS.get(node.definition) if map_keys else {}
        if defaults is None:
            members = {key: node.properties.get(key) for key in map_keys}
            defaults = {key: one.default for key, one in members.items() if one is not None and one.has_default}
        self.key_defaults = defaults

    def _shape(self) -> Shape:
        if self.atomic:
            return Shape.LEAF
        if self.kind in (Kind.OBJECT, Kind.MAP):
            return Shape.MAPPING
        if self.kind is Kind.ANY:
            return Shape.DEDUCED
        if self.kind is Kind.LIST and self.list_type == "map":
            return Shape.LIST_MAP
        return Shape.LIST_SET if self.kind is Kind.LIST and self.list_type == "set" else Shape.LEAF


# Marks that we put into raw schemas ourselves; OpenAPI has no such names.
ALWAYS_THERE = "x-allot-always-there"
ROOT = "x-allot-root"

_TYPES = {
    "boolean": Kind.BOOLEAN,
    "integer": Kind.INTEGER,
    "number": Kind.NUMBER,
    "array": Kind.LIST,
}


def _kind(raw: Raw, definition: str, structural: bool) -> Kind:
    if raw.get("x-kubernetes-int-or-string") is True or definition == _INT_OR_STRING:
        return Kind.INT_OR_STRING
    if definition == _QUANTITY:
        return Kind.QUANTITY
    type_ = raw.get("type")
    if isinstance(type_, list):
        type_ = next((each for each in type_ if each != "null"), None)
    if type_ == "string":
        return _string_kind(raw, definition) if not structural else Kind.STRING
    if type_ == "object" or (type_ is None and "properties" in raw):
        return _object_kind(raw, definition)
    return _TYPES.get(str(type_), Kind.ANY)


def _string_kind(raw: Raw, definition: str) -> Kind:
    if definition == _MICRO_TIME:
        return Kind.MICRO_TIME
    formats = {"date-time": Kind.TIME, "byte": Kind.BYTES, "int-or-string": Kind.INT_OR_STRING}
    return formats.get(str(raw.get("format")), Kind.STRING)


def _object_kind(raw: Raw, definition: str) -> Kind:
    if definition == _RAW_EXTENSION:
        return Kind.ANY
    additional = raw.get("additionalProperties")
    if definition == _FIELDS_V1 or (additional is not None and additional is not False):
        return Kind.MAP
    return Kind.OBJECT


def _list_type(raw: Raw) -> tuple[str, tuple[str, ...]]:
    """Type and keys of a list; a list without a type has the one that its patch strategy implies."""
    type_ = raw.get("x-kubernetes-list-type")
    if type_ == "map":
        keys = raw.get("x-kubernetes-list-map-keys")
        names = tuple(map(str, keys)) if isinstance(keys, list) else ()
        return ("map", names) if names else ("atomic", ())
    if type_ is None and "merge" in str(raw.get("x-kubernetes-patch-strategy", "")).split(","):
        key = raw.get("x-kubernetes-patch-merge-key")
        return ("map", (str(key),)) if key else ("set", ())
    return ("set", ()) if type_ == "set" else ("atomic", ())
