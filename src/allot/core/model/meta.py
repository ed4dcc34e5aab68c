"""The parts of meta/v1 that every object carries, and the base of all API structs.

Knows: names, labels, owners, conditions, times as text. Does not know any kind.
Everything is frozen: objects are shared between caches and decisions and are never changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec

# What the API calls int32 and int64; decoding refuses numbers outside their range.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

# RFC 3339 text in UTC and whole seconds, as Kubernetes prints it. Core never reads a clock, so a time is only compared
# or copied here. The pattern accepts every such text except 29 February; `model.codec` checks the rest
# closely and rewrites it if it is a time.
Time = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
        r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
        r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z\Z",
        extra={"format": "time"},
    ),
]

# A number, or a text: the name of a port, a percentage.
IntOrString = Int32 | str


class _EmptyMapping(dict[str, Any]):
    """An empty mapping that stays empty."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a default of the API types is immutable")

    __setitem__ = __ior__ = setdefault = update = _refuse


# The default of every mapping: shared, whereas a default of {} would create a dictionary in each of very many objects.
# A subclass of dict, so that it can be written as JSON anywhere.
EMPTY: Mapping[str, Any] = _EmptyMapping()


class APIStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """Base of every API type: immutable, camelCase on the wire, defaults left out, nothing but the named fields.

    Values that never change cannot form cycles, so the garbage collector can skip them (gc=False); caches hold very
    many.
    """


class PartialStruct(APIStruct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of a type that names only the fields that matter here; `codec.Envelope` keeps the others."""


class RawJSON:
    """A JSON value that Kubernetes passes through untouched (RawExtension), kept as compact JSON text.

    Insignificant white space is not kept, so two spellings of one value are equal here; Kubernetes compares
    bytes and calls them different (docs/reference/differences.md).
    """

    __slots__ = ("data",)

    data: bytes

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "data", msgspec.json.encode(value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"RawJSON is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[type[RawJSON], tuple[Any]]:
        return RawJSON, (self.value(),)

    def value(self) -> Any:
        """The decoded JSON value."""
        return msgspec.json.decode(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RawJSON) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"RawJSON({self.data.decode()})"


class OwnerReference(APIStruct, frozen=True, kw_only=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(APIStruct, frozen=True, kw_only=True):
    """Which fields a field manager owns (server-side apply)."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: Time | None = None
    fields_type: str = ""
    fields_v1: RawJSON | None = msgspec.field(default=None, name="fieldsV1")
    subresource: str = ""


class ObjectMeta(APIStruct, frozen=True, kw_only=True):
    """Metadata of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: Mapping[str, str] = EMPTY
    annotations: Mapping[str, str] = EMPTY
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class Condition(APIStruct, frozen=True, kw_only=True):
    """metav1.Condition."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class LabelSelectorRequirement(APIStruct, frozen=True, kw_only=True):
    """One condition on labels."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(APIStruct, frozen=True, kw_only=True):
    """Conditions on labels that must all hold; an empty selector matches every object."""

    match_labels: Mapping[str, str] = EMPTY
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
