"""Names that device allocation uses, checked the handwritten way: drivers, pools, devices, attributes.

Knows the format of these names and its errors. The same rules in declarative form, with other texts, are in
`declarative_formats`; `covered` marks fields that have both.
"""

from __future__ import annotations

import msgspec

from allot.core.validation import formats
from allot.core.validation.fields import Findings, byte_length, invalid, required, too_long

MUST_NAME_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def check_label(value: str, path: str, *, covered: bool = False) -> Findings:
    """A DNS label: device, request, counter names."""
    origin = "format=k8s-short-name"
    return [invalid(path, value, message, origin=origin, covered=covered) for message in formats.dns_label(value)]


def check_subdomain(value: str, path: str, *, covered: bool = False, origin: str = "format=k8s-long-name") -> Findings:
    """A DNS subdomain: class and claim names."""
    return [invalid(path, value, message, origin=origin, covered=covered) for message in formats.dns_subdomain(value)]


def check_driver_name(value: str, path: str, *, covered: bool = False) -> Findings:
    """A DNS subdomain of at most 63 bytes, in any case."""
    if not value:
        return [required(path, covered=covered)]
    found: Findings = []
    if byte_length(value) > formats.DRIVER_NAME_LENGTH_MAX:
        origin = "maxLength" if covered else ""
        found.append(too_long(path, formats.DRIVER_NAME_LENGTH_MAX, origin=origin, covered=covered))
    origin = "format=k8s-long-name-caseless" if covered else ""
    for message in formats.dns_subdomain(value.lower()):
        found.append(invalid(path, value, message, origin=origin, covered=covered))
    return found


def check_pool_name(value: str, path: str, *, covered: bool = False) -> Findings:
    """DNS subdomains joined by slashes, at most 253 bytes."""
    if not value:
        return [required(path, covered=covered)]
    origin = "format=k8s-resource-pool-name"
    found: Findings = []
    if byte_length(value) > formats.POOL_NAME_LENGTH_MAX:
        found.append(too_long(path, formats.POOL_NAME_LENGTH_MAX, origin=origin, covered=covered))
    # Equal segments have equal errors, which are reported once anyway.
    for segment in dict.fromkeys(value.split("/")):
        found += check_subdomain(segment, path, covered=covered, origin=origin)
    return found


def check_share_id(value: str, path: str) -> Findings:
    """A lower-case UUID. The declarative rule always finds the same and replaces this one."""
    return [
        invalid(path, value, message, origin="format=k8s-uuid", covered=True)
        for message in formats.lower_case_uuid(value)
    ]


def _check_identifier(value: str, path: str, origin: str, covered: bool) -> Findings:
    found: Findings = []
    if byte_length(value) > formats.IDENTIFIER_LENGTH_MAX:
        found.append(too_long(path, formats.IDENTIFIER_LENGTH_MAX, origin=origin, covered=covered))
    return found + [
        invalid(path, value, message, origin=origin, covered=covered) for message in formats.c_identifier(value)
    ]


def check_qualified_name(value: str, path: str, *, origin: str = "", covered: bool = False) -> Findings:
    """A C identifier with an optional domain; like upstream, accepts anything with two or more slashes."""
    match value.split("/"):
        case [name]:
            return _check_identifier(name, path, origin, covered)
        case [domain, name]:
            found: Findings = []
            if not domain:
                found.append(invalid(path, "", "the domain must not be empty", origin=origin, covered=covered))
            else:
                found += [
                    msgspec.structs.replace(item, origin=origin, covered=covered)
                    for item in check_driver_name(domain, path)
                ]
            if not name:
                found.append(invalid(path, "", "the name must not be empty", origin=origin, covered=covered))
            else:
                found += _check_identifier(name, path, origin, covered)
            return found
        case _:
            return []


def check_fully_qualified_name(value: str, path: str) -> Findings:
    """A qualified name that has a domain; always covered by a declarative rule."""
    origin = "format=k8s-resource-fully-qualified-name"
    found = check_qualified_name(value, path, origin=origin, covered=True)
    if "/" not in value:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(invalid(path, value, detail, origin=origin, covered=True))
    return found
