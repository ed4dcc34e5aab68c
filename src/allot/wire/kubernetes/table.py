"""The number, JSON name and type of each field of a message.

Reads the table that proto/kubernetes_fields.py makes from Kubernetes' sources: messages of all its API groups, and for each
field whether JSON leaves it out when it is zero. Maps an object's apiVersion and kind to its message.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

META = "apimachinery.pkg.apis.meta.v1"
EXTENSIONS = "apiextensions_apiserver.pkg.apis.apiextensions"
REGISTRATIONS = "kube_aggregator.pkg.apis.apiregistration"
_DELETE_OPTIONS = "DeleteOptions"
# Groups, and the folders of Kubernetes' sources with their messages.
_GROUPS = {
    "": "core",
    "apiextensions.k8s.io": EXTENSIONS,
    "apiregistration.k8s.io": REGISTRATIONS,
    "flowcontrol.apiserver.k8s.io": "flowcontrol",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "rbac.authorization.k8s.io": "rbac",
    **{name: name for name in ("apps", "autoscaling", "batch", "extensions", "policy")},
    **{
        f"{name}.k8s.io": name
        for name in (
            *("admissionregistration", "authentication", "authorization", "certificates", "coordination", "discovery"),
            *("events", "lifecycle", "networking", "node", "resource", "scheduling", "storage", "storagemigration"),
        )
    },
}

TEXT, BYTES, INTEGER, BOOLEAN, DOUBLE = "s", "b", "i", "?", "d"
_REPEATED, _OMITTED_IF_ZERO, _INLINE = "r", "o", "l"


class Field(NamedTuple):
    """One field of a message. type_: one of the letters above, or the name of a message; the values' type for a map."""

    name: str
    type_: str
    repeated: bool = False
    map_: bool = False
    # Inlined in JSON.
    inline: bool = False
    # A non-pointer value, sent even if it is not set.
    omitted_if_zero: bool = False


class Message(NamedTuple):
    """Fields by number."""

    name: str
    fields: dict[int, Field]
    # A list of strings; a message only because protobuf has no lists of lists.
    is_list: bool
    # Lists and maps that JSON contains even if empty; protobuf does not distinguish empty from absent.
    never_omitted: tuple[str, ...]


@cache
def _rows() -> dict[str, dict[int, tuple[str, str, str]]]:
    data = files("allot.wire").joinpath("kubernetes_fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[int, tuple[str, str, str]]])


@cache
def message_names() -> frozenset[str]:
    """The names of all messages."""
    return frozenset(_rows())


@cache
def message_of(name: str) -> Message:
    """A message of the table."""
    fields = {number: _field(*row) for number, row in _rows()[name].items()}
    never_omitted = tuple(
        row[0]
        for number, row in _rows()[name].items()
        if (fields[number].repeated or fields[number].map_) and _OMITTED_IF_ZERO not in row[2]
    )
    return Message(name, fields, fields == {1: Field("items", TEXT, repeated=True)}, never_omitted)


def _field(name: str, type_: str, flags: str) -> Field:
    map_ = type_.startswith("<")
    return Field(
        name=name,
        type_=type_[1:-1] if map_ else type_,
        repeated=_REPEATED in flags,
        map_=map_,
        inline=_INLINE in flags,
        omitted_if_zero=_OMITTED_IF_ZERO in flags and type_ in (TEXT, BYTES, INTEGER, BOOLEAN, DOUBLE),
    )


def object_message(api_version: str, kind: str) -> str | None:
    """The message of an object in a request; None if the table has none."""
    if kind == _DELETE_OPTIONS:
        # Every group version has it.
        return f"{META}.{kind}"
    group, _, version = api_version.rpartition("/")
    folder = _GROUPS.get(group)
    name = f"{folder}.{version}.{kind}"
    if folder is None or name not in message_names():
        return None
    metadata = message_of(name).fields.get(1)
    return name if metadata is not None and metadata.name == "metadata" else None
