"""The objects that a list, watch or deletecollection selects: label and field selectors of a request.

Field selectors are parsed and checked here (`spec.nodeName=n1,status.phase!=Failed`); label selectors come from core.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.resources import Resource
from allot.core.selectors import Operator, Requirements, SelectorError, parse_label_selector
from allot.store.port import Entry

Object = dict[str, Any]

_TERMS_MAX = 100
# Fields selected by what the object contains, not by what an absent value means.
_LITERAL_FIELDS = frozenset(
    ("metadata.name", "metadata.namespace", "spec.nodeName", "involvedObject.name", "involvedObject.uid")
)
# Characters that JSON has no other way to write.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
# Kinds for which upstream's error about an unknown field does not list the known ones.
_DEFAULT_FIELDS = ("metadata.name", "metadata.namespace")


class FieldTerm(msgspec.Struct, frozen=True):
    """One condition: a field equals a value, or does not."""

    field: str
    value: str
    equal: bool
    read: Callable[[Object], str]

    def matches(self, object_: Object) -> bool:
        """Whether the object satisfies the condition."""
        return (self.read(object_) == self.value) is self.equal


class Selection(msgspec.Struct, frozen=True):
    """What a request selects. `name` is set when the fields allow one name only, so that it can be looked up."""

    labels: Requirements = Requirements()
    fields: tuple[FieldTerm, ...] = ()
    name: str = ""
    # Texts contained in the JSON of every selected object.
    needles: tuple[bytes, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether everything is selected."""
        return not self.labels.all and not self.fields

    @property
    def by_content(self) -> bool:
        """Whether anything besides metadata matters."""
        return any(term.field not in _METADATA for term in self.fields)

    @property
    def terms(self) -> int:
        """How many conditions there are, at least 1."""
        return len(self.labels.all) + len(self.fields) or 1

    def matches(self, object_: Object) -> bool:
        """Whether the object is selected."""
        if self.labels.all and not self.labels.matches(object_.get("metadata", {}).get("labels") or {}):
            return False
        return all(term.matches(object_) for term in self.fields)

    def matches_entry(self, entry: Entry) -> bool:
        """Whether a stored object is selected. Most others are ruled out by their JSON text, without decoding."""
        object_ = entry.decoded
        if object_ is None:
            encoded = entry.encoded
            for needle in self.needles:
                if needle not in encoded:
                    return False
            # Decoded just for this: a long list would evict what others need.
            object_ = msgspec.json.decode(encoded)
        return self.matches(object_)


EVERYTHING = Selection()


def selection(resource: Resource, label_selector: str, field_selector: str, name: str = "") -> Selection:
    """The selection of a request; StatusError 400 for selectors that cannot be understood."""
    labels = Requirements()
    if label_selector:
        try:
            labels = parse_label_selector(label_selector)
        except SelectorError as error:
            raise bad_request(f"unable to parse requirement: {error}") from None
    fields = _field_terms(resource, field_selector) if field_selector else ()
    only = next((term.value for term in fields if term.field == "metadata.name" and term.equal), "")
    if name:
        if only and only != name:
            raise bad_request("fieldSelector metadata.name doesn't match requested name")
        if not only:
            fields = (*fields, FieldTerm("metadata.name", name, True, _name))
        only = name
    if not labels.all and not fields:
        return EVERYTHING
    return Selection(labels, fields, only, tuple(_needles(labels, fields)))


def _needles(labels: Requirements, fields: tuple[FieldTerm, ...]) -> Iterator[bytes]:
    wanted = [next(iter(each.values)) for each in labels.all if each.operator is Operator.IN and len(each.values) == 1]
    wanted += [term.value for term in fields if term.equal and term.field in _LITERAL_FIELDS]
    for value in wanted:
        if _PLAIN.fullmatch(value):
            yield f'"{value}"'.encode()


def _field_terms(resource: Resource, text: str) -> tuple[FieldTerm, ...]:
    terms: list[FieldTerm] = []
    parts = [part for part in _split(text) if part]
    if len(parts) > _TERMS_MAX:
        raise bad_request(f"fieldSelector: {len(parts)} terms, at most {_TERMS_MAX} are allowed")
    for part in parts:
        field, equal, value = _term(text, part)
        read = _reader(resource, field)
        terms.append(FieldTerm(field, value, equal, read))
    return tuple(terms)


def _split(text: str) -> list[str]:
    """Terms between commas that are not escaped."""
    parts, start, escaped = [], 0, False
    for index, letter in enumerate(text):
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == ",":
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return parts


def _term(text: str, part: str) -> tuple[str, bool, str]:
    for index in range(len(part)):
        for operator, equal in (("!=", False), ("==", True), ("=", True)):
            if part.startswith(operator, index):
                return part[:index], equal, _unescaped(part[index + len(operator) :])
    raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")


def _unescaped(value: str) -> str:
    if "\\" not in value and "=" not in value:
        return value
    plain, escaped = [], False
    for letter in value:
        if escaped:
            if letter not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{letter}")
            plain.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {letter}")
        else:
            plain.append(letter)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(plain)


def _name(object_: Object) -> str:
    return str(object_.get("metadata", {}).get("name", ""))


def _namespace(object_: Object) -> str:
    return str(object_.get("metadata", {}).get("namespace", ""))


_METADATA: Mapping[str, Callable[[Object], str]] = {"metadata.name": _name, "metadata.namespace": _namespace}


def _reader(resource: Resource, field: str) -> Callable[[Object], str]:
    read = resource.selectable_fields.get(field) or _METADATA.get(field)
    if read is None or (field == "metadata.namespace" and not resource.namespaced):
        raise _unknown_field(resource, field)
    return read


def _unknown_field(resource: Resource, field: str) -> StatusError:
    if resource.kind == "ResourceSlice":
        kind = f"{resource.group}/{resource.version}, Kind={resource.kind}"
        return bad_request(f"field label not supported for {kind}: {field}")
    if resource.kind == "Job":
        return bad_request(f'field label "{field}" not supported for Job')
    if resource.selectable_fields and not resource.group.count("."):
        return bad_request(f"field label not supported: {field}")
    if resource.group in ("certificates.k8s.io", "events.k8s.io"):
        return bad_request(f"field label not supported: {field}")
    known = ", ".join(f'"{name}"' for name in (*_DEFAULT_FIELDS, *resource.selectable_fields))
    return bad_request(f'"{field}" is not a known field selector: only {known}')
