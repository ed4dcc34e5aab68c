"""String formats of declarative validation: the texts and origins behind `+k8s:format=...` tags.

Knows how each format reports a bad value. The `rules_*` tables assign formats to fields.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.validation import formats
from allot.core.validation.fields import Findings, byte_length, invalid, too_long
from allot.core.validation.formats import BYTES, Messages

# path, value, whether the rule is at stage beta
Format = Callable[[str, str, bool], Findings]

_REQUESTS_PREFIX = "requests."
_KUBERNETES_DOMAIN = "kubernetes.io/"


def _simple(name: str, messages_of: Callable[[str], Messages]) -> Format:
    origin = f"format={name}"

    def check(path: str, value: str, beta: bool) -> Findings:
        return [invalid(path, value, message, origin=origin, beta=beta) for message in messages_of(value)]

    return check


short_name = _simple("k8s-short-name", lambda value: formats.dns_label(value, BYTES))
long_name = _simple("k8s-long-name", lambda value: formats.dns_subdomain(value, BYTES))
long_name_caseless = _simple("k8s-long-name-caseless", formats.dns_subdomain_caseless)
label_key = _simple("k8s-label-key", formats.label_key)
path_segment_name = _simple("k8s-path-segment-name", formats.path_segment)
uuid = _simple("k8s-uuid", formats.lower_case_uuid)


def resource_pool_name(path: str, value: str, beta: bool) -> Findings:
    """DNS subdomains joined by slashes."""
    origin = "format=k8s-resource-pool-name"
    found = []
    if byte_length(value) > formats.POOL_NAME_LENGTH_MAX:
        found.append(too_long(path, formats.POOL_NAME_LENGTH_MAX, origin=origin, beta=beta))
    # A name of valid length has fewer segments; for longer names, the first ones are enough.
    for position, segment in enumerate(value.split("/", formats.POOL_NAME_LENGTH_MAX)[: formats.POOL_NAME_LENGTH_MAX]):
        if not segment:
            detail = f"segment {position}: must not be empty"
            found.append(invalid(path, value, detail, origin=origin, beta=beta))
            continue
        for message in formats.dns_subdomain(segment, BYTES):
            found.append(invalid(path, segment, f"segment {position}: {message}", origin=origin, beta=beta))
    return found


def _identifier(path: str, value: str, origin: str, beta: bool) -> Findings:
    found = []
    if byte_length(value) > formats.IDENTIFIER_LENGTH_MAX:
        found.append(too_long(path, formats.IDENTIFIER_LENGTH_MAX, origin=origin, beta=beta))
    return found + [invalid(path, value, message, origin=origin, beta=beta) for message in formats.c_identifier(value)]


def _domain(path: str, domain: str, origin: str, beta: bool) -> Findings:
    if not domain:
        return [invalid(path, "", "prefix must not be empty", origin=origin, beta=beta)]
    found = []
    if byte_length(domain) > formats.DRIVER_NAME_LENGTH_MAX:
        found.append(too_long(path, formats.DRIVER_NAME_LENGTH_MAX, origin=origin, beta=beta))
    for message in formats.dns_subdomain(domain, BYTES):
        found.append(invalid(path, domain, f"prefix: {message}", origin=origin, beta=beta))
    return found


def fully_qualified_name(path: str, value: str, beta: bool) -> Findings:
    """A domain and a C identifier separated by a slash; further slashes are not checked, as upstream."""
    origin = "format=k8s-resource-fully-qualified-name"
    found: Findings = []
    match value.split("/"):
        case [name]:
            found += _identifier(path, name, origin, beta)
            detail = "a fully qualified name must be a domain and a name separated by a slash"
            found.append(invalid(path, value, detail, origin=origin, beta=beta))
        case [domain, name]:
            found += _domain(path, domain, origin, beta)
            if name:
                found += _identifier(path, name, origin, beta)
            else:
                found.append(invalid(path, "", "name must not be empty", origin=origin, beta=beta))
    return found


def extended_resource_name(path: str, value: str, beta: bool) -> Findings:
    """The extended resource name of a DeviceClass, for use in pods' resource requests."""
    details = []
    if "/" not in value:
        details.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif _KUBERNETES_DOMAIN in value:
        details.append(f'must not have "{_KUBERNETES_DOMAIN}" domain')
    if value.startswith(_REQUESTS_PREFIX):
        details.append(f'must not have "{_REQUESTS_PREFIX}" prefix')
    details += formats.label_key(_REQUESTS_PREFIX + value)
    origin = "format=k8s-extended-resource-name"
    return [invalid(path, value, detail, origin=origin, beta=beta) for detail in details]
