"""Endpoints and EndpointSlices: where the traffic of a service goes.

Loopback and link-local addresses are refused, however they are spelled.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.validation import formats
from allot.core.validation.addresses import endpoint_ip, family, ip_warnings, legacy_ip, strict_ip
from allot.core.validation.builtin.checks import (
    PROTOCOLS,
    check_labels,
    frozen,
    one_of,
    port_number,
    told,
)
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    fill,
    fill_text,
    given,
    items,
    members,
    number,
    same,
    text,
    texts,
)
from allot.core.validation.fields import Findings, child, duplicate, index, invalid, required, too_many
from allot.core.validation.formats import Messages

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_ENDPOINTS_MAX = 1000
_ADDRESSES_MAX = 100
_PORTS_MAX = 20_000
_HINTS_MAX = 8
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
# Controllers that write every address in its canonical form.
_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")


def _told_if_given(object_: Object, path: str, name: str, format_: Callable[[str], Messages]) -> Findings:
    value = text(object_, name)
    return told(child(path, name), value, format_(value)) if given(object_, name) else []


# --- Endpoints ---


def _endpoints_defaults(endpoints: Object) -> None:
    for subset in items(endpoints, "subsets"):
        for port in items(subset, "ports"):
            fill_text(port, protocol="TCP")


def _check_endpoints(endpoints: Object) -> Findings:
    found: Findings = []
    for position, subset in enumerate(items(endpoints, "subsets")):
        where = index("subsets", position)
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(required(where, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for number_, address in enumerate(items(subset, name)):
                found += _check_address(address, index(child(where, name), number_))
        ports = items(subset, "ports")
        for number_, port in enumerate(ports):
            found += _check_port(port, len(ports) > 1, index(child(where, "ports"), number_))
    return found


def _check_address(address: Object, path: str) -> Findings:
    ip, where = text(address, "ip"), child(path, "ip")
    found = told(where, ip, legacy_ip(ip))
    if text(address, "hostname"):
        found += _told_if_given(address, path, "hostname", formats.dns_label)
    found += _told_if_given(address, path, "nodeName", formats.dns_subdomain)
    return found + told(where, ip, endpoint_ip(ip))


def _check_port(port: Object, needs_name: bool, path: str) -> Findings:
    found: Findings = []
    if text(port, "name"):
        found += _told_if_given(port, path, "name", formats.dns_label)
    elif needs_name:
        found.append(required(child(path, "name")))
    found += told(child(path, "port"), number(port, "port") or 0, port_number(number(port, "port") or 0))
    found += one_of(port, "protocol", PROTOCOLS, path, needed=True)
    return found + _told_if_given(port, path, "appProtocol", formats.label_key)


def _recheck_endpoints(new: Object, old: Object) -> Findings:
    """Stored values were valid when written."""
    return [] if same(new.get("subsets"), old.get("subsets")) else _check_endpoints(new)


def _endpoints_warnings(endpoints: Object) -> tuple[str, ...]:
    found: list[str] = []
    for position, subset in enumerate(items(endpoints, "subsets")):
        for name in ("addresses", "notReadyAddresses"):
            for number_, address in enumerate(items(subset, name)):
                where = index(child(index("subsets", position), name), number_)
                found += ip_warnings(child(where, "ip"), text(address, "ip"))
    return tuple(found)


# --- EndpointSlices ---


def _slice_defaults(slice_: Object) -> None:
    fill(slice_, endpoints=None)
    for port in items(slice_, "ports"):
        fill(port, name="", protocol="TCP")


def _prepare_slice(slice_: Object) -> None:
    """The topology of v1beta1 cannot be written through v1."""
    for endpoint in items(slice_, "endpoints"):
        endpoint.pop("deprecatedTopology", None)


def _prepare_slice_update(new: Object, old: Object, _subresource: str) -> None:
    if not same(new.get("endpoints"), old.get("endpoints")):
        _prepare_slice(new)
    if not same(members(new, "metadata", "labels"), members(old, "metadata", "labels")):
        generation = number(old, "metadata", "generation") or 0
        new["metadata"] = {**members(new, "metadata"), "generation": generation + 1}


def _check_slice(slice_: Object) -> Findings:
    return _check_slice_head(slice_) + _check_slice_endpoints(slice_)


def _recheck_slice(new: Object, old: Object) -> Findings:
    """Stored endpoints were valid when written."""
    found = _check_slice_head(new)
    return found if same(new.get("endpoints"), old.get("endpoints")) else found + _check_slice_endpoints(new)


def _check_slice_head(slice_: Object) -> Findings:
    found = one_of(slice_, "addressType", _ADDRESS_TYPES, "", needed=True)
    ports = items(slice_, "ports")
    if len(ports) > _PORTS_MAX:
        return [*found, too_many("ports", len(ports), _PORTS_MAX)]
    names = set()
    for position, port in enumerate(ports):
        where, name = index("ports", position), text(port, "name")
        if name:
            found += told(child(where, "name"), name, formats.dns_label(name))
        if name in names:
            found.append(duplicate(child(where, "name"), name))
        names.add(name)
        found += one_of(port, "protocol", PROTOCOLS, where, needed=True)
        found += _told_if_given(port, where, "appProtocol", formats.label_key)
    return found


def _check_slice_endpoints(slice_: Object) -> Findings:
    endpoints = items(slice_, "endpoints")
    if len(endpoints) > _ENDPOINTS_MAX:
        return [too_many("endpoints", len(endpoints), _ENDPOINTS_MAX)]
    found: Findings = []
    for position, endpoint in enumerate(endpoints):
        where = index("endpoints", position)
        path, addresses = child(where, "addresses"), texts(endpoint, "addresses")
        if not addresses:
            found.append(required(path))
        elif len(addresses) > _ADDRESSES_MAX:
            found.append(too_many(path, len(addresses), _ADDRESSES_MAX))
        for number_, address in enumerate(addresses):
            found += _check_slice_address(address, text(slice_, "addressType"), path, number_)
        found += _told_if_given(endpoint, where, "nodeName", formats.dns_subdomain)
        topology = members(endpoint, "deprecatedTopology")
        found += check_labels(
            {name: str(value) for name, value in topology.items()}, child(where, "deprecatedTopology")
        )
        found += _told_if_given(endpoint, where, "hostname", formats.dns_label)
        found += _check_hints(members(endpoint, "hints"), child(where, "hints"))
    return found


def _check_slice_address(address: str, type_: str, path: str, position: int) -> Findings:
    where = index(path, position)
    if type_ == "FQDN":
        return _check_domain(address, where)
    if type_ not in ("IPv4", "IPv6"):
        return []
    messages = legacy_ip(address) if type_ == "IPv4" else strict_ip(address)
    if messages:
        return told(where, address, messages)
    found: Findings = []
    if family(address) != (4 if type_ == "IPv4" else 6):
        found.append(invalid(path, address, f"must be an {type_} address"))
    return found + told(where, address, endpoint_ip(address))


def _check_domain(name: str, path: str) -> Findings:
    """A domain name of at least two parts; a trailing dot is allowed."""
    if not name:
        return [required(path)]
    name = name.removesuffix(".")
    messages = formats.dns_subdomain(name)
    if messages:
        return [invalid(path, name, ",".join(messages))]
    labels = name.split(".")
    if len(labels) < 2:
        return [invalid(path, name, "should be a domain with at least two segments separated by dots")]
    for label in labels:
        messages = formats.dns_label(label)
        if messages:
            return [invalid(path, label, ",".join(messages))]
    return []


def _check_hints(hints: Object, path: str) -> Findings:
    found: Findings = []
    for name, format_ in (("forZones", formats.label_value), ("forNodes", formats.dns_subdomain)):
        where, entries = child(path, name), items(hints, name)
        if len(entries) > _HINTS_MAX:
            return [*found, too_many(where, len(entries), _HINTS_MAX)]
        seen = set()
        for position, entry in enumerate(entries):
            value, place = text(entry, "name"), child(index(where, position), "name")
            if value in seen:
                found.append(duplicate(place, value))
            seen.add(value)
            found += told(place, value, format_(value))
    return found


def _check_slice_update(new: Object, old: Object, _subresource: str) -> Findings:
    return frozen(text(new, "addressType"), text(old, "addressType"), "addressType")


def _slice_warnings(slice_: Object) -> tuple[str, ...]:
    found: list[str] = []
    if text(slice_, "addressType") == "FQDN":
        found.append("spec.addressType: FQDN endpoints are deprecated")
    if members(slice_, "metadata", "labels").get(_MANAGED_BY) in _CONTROLLERS:
        return tuple(found)
    for position, endpoint in enumerate(items(slice_, "endpoints")):
        for number_, address in enumerate(texts(endpoint, "addresses")):
            found += ip_warnings(index(child(index("endpoints", position), "addresses"), number_), address)
    return tuple(found)


ENDPOINTS = Rules(
    defaults=_endpoints_defaults, check=_check_endpoints, recheck=_recheck_endpoints, warnings=_endpoints_warnings
)
ENDPOINT_SLICE = Rules(
    defaults=_slice_defaults,
    generation_of=("addressType", "endpoints", "ports"),
    prepare_create=_prepare_slice,
    prepare_update=_prepare_slice_update,
    check=_check_slice,
    recheck=_recheck_slice,
    check_update=_check_slice_update,
    warnings=_slice_warnings,
)
