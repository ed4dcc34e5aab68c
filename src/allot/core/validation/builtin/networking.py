"""networking.k8s.io: network policies, ingresses and their classes, addresses and networks of services."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allot.core.validation import formats
from allot.core.validation.addresses import (
    are_dual_stack,
    cidr_warnings,
    contains,
    ip_warnings,
    legacy_cidr,
    legacy_ip,
    parse_address,
    parse_network,
    strict_cidr,
    strict_ip,
)
from allot.core.validation.builtin.checks import (
    IMMUTABLE_TEXT,
    PROTOCOLS,
    frozen,
    immutable,
    label_selector,
    one_of,
    port_name,
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
    present,
    text,
    texts,
)
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from allot.core.validation.formats import Messages

_NOT_AN_IP = "must be a DNS name, not an IP address"


def named_segment(value: str, path: str, *, needed: bool = True) -> Findings:
    """A name that is valid as a URL path segment."""
    if not value:
        return [required(path)] if needed else []
    return told(path, value, formats.path_segment(value))


# --- network policies ---


def _policy_defaults(policy: Object) -> None:
    spec = present(policy, "spec")
    fill(spec, podSelector={})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in items(spec, "ingress") + items(spec, "egress"):
        for port in items(rule, "ports"):
            fill_text(port, protocol="TCP")


def _rules_of(policy: Object) -> Iterator[tuple[Object, str, str]]:
    """Rules of a policy with their path and the field name of their peers."""
    for name, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(items(policy, "spec", name)):
            yield rule, index(child("spec", name), position), peers


def _networks_of(policy: Object) -> Iterator[tuple[str, str]]:
    """Networks in a policy with their path."""
    for rule, path, name in _rules_of(policy):
        for position, peer in enumerate(items(rule, name)):
            block, where = members(peer, "ipBlock"), child(index(child(path, name), position), "ipBlock")
            if text(block, "cidr"):
                yield text(block, "cidr"), child(where, "cidr")
            for number_, network in enumerate(texts(block, "except")):
                yield network, index(child(where, "except"), number_)


def _check_policy(policy: Object) -> Findings:
    return _recheck_policy(policy, {})


def _recheck_policy(policy: Object, old: Object) -> Findings:
    """Stored networks may keep their spelling."""
    known = frozenset(network for network, _ in _networks_of(old))
    found = label_selector(members(policy, "spec", "podSelector"), "spec.podSelector")
    for rule, path, name in _rules_of(policy):
        for position, port in enumerate(items(rule, "ports")):
            found += _check_policy_port(port, index(child(path, "ports"), position))
        for position, peer in enumerate(items(rule, name)):
            found += _check_peer(peer, known, index(child(path, name), position))
    types = texts(policy, "spec", "policyTypes")
    if len(types) > 2:
        return [*found, invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for position, type_ in enumerate(types):
        if type_ not in ("Ingress", "Egress"):
            found.append(not_supported(index("spec.policyTypes", position), type_, ("Egress", "Ingress")))
    return found


def _check_policy_port(port: Object, path: str) -> Findings:
    found = one_of(port, "protocol", PROTOCOLS, path)
    value, end, where = port.get("port"), number(port, "endPort"), child(path, "endPort")
    if isinstance(value, int) and not isinstance(value, bool):
        found += told(child(path, "port"), value, port_number(value))
        if end is not None:
            if end < value:
                found.append(invalid(where, end, "must be greater than or equal to `port`"))
            found += told(where, end, port_number(end))
    elif isinstance(value, str):
        if end is not None:
            found.append(invalid(where, end, "may not be specified when `port` is non-numeric"))
        found += told(child(path, "port"), value, port_name(value))
    elif end is not None:
        found.append(invalid(where, end, "may not be specified when `port` is not specified"))
    return found


def _check_peer(peer: Object, known: frozenset[str], path: str) -> Findings:
    found: Findings = []
    peers = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if given(peer, name)]
    for name in peers:
        where = child(path, name)
        if name == "ipBlock":
            found += _check_block(members(peer, name), known, where)
        else:
            found += label_selector(members(peer, name), where)
    if not peers:
        found.append(required(path, "must specify a peer"))
    elif len(peers) > 1 and "ipBlock" in peers:
        found.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return found


def _check_block(block: Object, known: frozenset[str], path: str) -> Findings:
    network, where = text(block, "cidr"), child(path, "cidr")
    if not network:
        return [required(where)]
    found = told(where, network, legacy_cidr(network)) if network not in known else []
    if parse_network(network) is None:
        return found
    for position, exception in enumerate(texts(block, "except")):
        where = index(child(path, "except"), position)
        if exception not in known:
            found += told(where, exception, legacy_cidr(exception))
        if parse_network(exception) is not None and not contains(network, exception):
            found.append(invalid(where, exception, "must be a strict subset of `cidr`"))
    return found


def _policy_warnings(policy: Object) -> tuple[str, ...]:
    return tuple(warning for network, path in _networks_of(policy) for warning in cidr_warnings(path, network))


NETWORK_POLICY = Rules(
    defaults=_policy_defaults,
    generation_of=("spec",),
    check=_check_policy,
    recheck=_recheck_policy,
    warnings=_policy_warnings,
)

# --- ingresses ---

_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDS = ("/..", "/.")
_WILDCARD_FORM = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
    f"for validation is '{_WILDCARD_FORM}')"
)
_PATH_FORM = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_wildcard = re.compile(_WILDCARD_FORM).fullmatch
_http_path = re.compile(_PATH_FORM).fullmatch


def _host(value: str) -> Messages:
    if "*" not in value:
        return formats.dns_subdomain(value)
    messages = ["must be no more than 253 characters"] if byte_length(value) > formats.SUBDOMAIN_LENGTH_MAX else []
    return messages if _wildcard(value) else [*messages, _WILDCARD_TEXT]


def _check_ingress(ingress: Object) -> Findings:
    found = _recheck_ingress(ingress, {})
    annotated = members(ingress, "metadata", "annotations").get(_CLASS_ANNOTATION)
    class_ = members(ingress, "spec").get("ingressClassName")
    if isinstance(annotated, str) and class_ is not None and annotated != class_:
        detail = "must match `ingressClassName` when both are specified"
        found.append(invalid(f"annotations.{_CLASS_ANNOTATION}", annotated, detail))
    return found


def _recheck_ingress(ingress: Object, old: Object) -> Findings:
    """Secret names and wildcard rules stored before they were checked may stay."""
    spec, before = members(ingress, "spec"), members(old, "spec")
    rules, default = items(spec, "rules"), members(spec, "defaultBackend")
    found: Findings = []
    if not rules and not given(spec, "defaultBackend"):
        found.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
    if given(spec, "defaultBackend"):
        found += _check_backend(default, "spec.defaultBackend")
    lenient = any("*" in text(rule, "host") and _check_http(rule, "") for rule in items(before, "rules"))
    for position, rule in enumerate(rules):
        where, host = index("spec.rules", position), text(rule, "host")
        if host and parse_address(host) is not None:
            found.append(invalid(child(where, "host"), host, _NOT_AN_IP))
        found += told(child(where, "host"), host, _host(host)) if host else []
        if "*" not in host or not lenient:
            found += _check_http(rule, where)
    any_secret = any(
        text(each, "secretName") and formats.dns_subdomain(text(each, "secretName")) for each in items(before, "tls")
    )
    for position, each in enumerate(items(spec, "tls")):
        where, secret = index("spec.tls", position), text(each, "secretName")
        for number_, host in enumerate(texts(each, "hosts")):
            found += told(index(child(where, "hosts"), number_), host, _host(host))
        if secret and not any_secret:
            found += told(child(where, "secretName"), secret, formats.dns_subdomain(secret))
    if given(spec, "ingressClassName"):
        class_ = text(spec, "ingressClassName")
        found += told("spec.ingressClassName", class_, formats.dns_subdomain(class_))
    return found


def _check_http(rule: Object, path: str) -> Findings:
    if not given(rule, "http"):
        return []
    where, paths = child(path, "http", "paths"), items(rule, "http", "paths")
    found = [] if paths else [required(where)]
    for position, each in enumerate(paths):
        found += _check_path(each, index(where, position))
    return found


def _check_path(each: Object, path: str) -> Findings:
    if not given(each, "pathType"):
        return [required(child(path, "pathType"), "pathType must be specified")]
    type_, value, where = text(each, "pathType"), text(each, "path"), child(path, "path")
    found: Findings = []
    if type_ not in _PATH_TYPES:
        found.append(not_supported(child(path, "pathType"), type_, _PATH_TYPES))
    elif type_ == "ImplementationSpecific":
        if value and not value.startswith("/"):
            found.append(invalid(where, value, "must be an absolute path"))
    else:
        if not value.startswith("/"):
            found.append(invalid(where, value, "must be an absolute path"))
        found += [invalid(where, value, f"must not contain '{bad}'") for bad in _BAD_SEQUENCES if bad in value]
        found += [invalid(where, value, f"cannot end with '{bad}'") for bad in _BAD_ENDS if value.endswith(bad)]
    return found + _check_backend(members(each, "backend"), child(path, "backend"))


def _check_backend(backend: Object, path: str) -> Findings:
    if given(backend, "resource") and given(backend, "service"):
        return [invalid(path, "", "cannot set both resource and service backends")]
    if given(backend, "resource"):
        return _check_reference(members(backend, "resource"), child(path, "resource"))
    if not given(backend, "service"):
        return [invalid(path, "", "resource or service backend is required")]
    service, where = members(backend, "service"), child(path, "service")
    name, port = text(service, "name"), members(service, "port")
    found = told(child(where, "name"), name, formats.dns_label(name)) if name else [required(child(where, "name"))]
    port_name_, port_number_ = text(port, "name"), number(port, "number") or 0
    if port_name_ and port_number_:
        found.append(invalid(path, "", "cannot set both port name & port number"))
    elif port_name_:
        found += told(child(where, "port", "name"), port_name_, port_name(port_name_))
    elif port_number_:
        found += told(child(where, "port", "number"), port_number_, port_number(port_number_))
    else:
        found.append(required(path, "port name or number is required"))
    return found


def _check_reference(reference: Object, path: str) -> Findings:
    found: Findings = []
    if given(reference, "apiGroup"):
        group = text(reference, "apiGroup")
        found += told(child(path, "apiGroup"), group, formats.dns_subdomain(group))
    for name in ("kind", "name"):
        found += named_segment(text(reference, name), child(path, name))
    return found


def _check_ingress_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource != "status":
        return []
    found: Findings = []
    known = {text(ingress, "ip") for ingress in items(old, "status", "loadBalancer", "ingress")}
    for position, ingress in enumerate(items(new, "status", "loadBalancer", "ingress")):
        where = index("status.loadBalancer.ingress", position)
        address, name = text(ingress, "ip"), text(ingress, "hostname")
        if address and address not in known:
            found += told(child(where, "ip"), address, legacy_ip(address))
        if name:
            found += told(child(where, "hostname"), name, formats.dns_subdomain(name))
            if parse_address(name) is not None:
                found.append(invalid(child(where, "hostname"), name, _NOT_AN_IP))
    return found


def _ingress_warnings(ingress: Object) -> tuple[str, ...]:
    found: list[str] = []
    for position, each in enumerate(items(ingress, "status", "loadBalancer", "ingress")):
        found += ip_warnings(index("status.loadBalancer.ingress", position), text(each, "ip"))
    return tuple(found)


INGRESS = Rules(
    defaults=lambda o: fill(o, spec={}),
    initial_status=lambda _: {"loadBalancer": {}},
    generation_of=("spec",),
    check=_check_ingress,
    recheck=_recheck_ingress,
    check_update=_check_ingress_update,
    warnings=_ingress_warnings,
)

# --- classes of ingresses ---

_CONTROLLER_LENGTH_MAX = 250


def _class_defaults(class_: Object) -> None:
    parameters = members(class_, "spec").get("parameters")
    if isinstance(parameters, dict):
        fill_text(parameters, scope="Cluster")


def _check_class(class_: Object) -> Findings:
    controller, path = text(class_, "spec", "controller"), "spec.controller"
    found = [too_long(path, _CONTROLLER_LENGTH_MAX)] if byte_length(controller) > _CONTROLLER_LENGTH_MAX else []
    host, _, rest = controller.partition("/")
    if not controller:
        found.append(required(path))
    elif not host or not rest:
        found.append(invalid(path, controller, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        found += told(path, host, formats.dns_subdomain(host))
        if not _http_path(rest):
            found.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH_FORM}')"))
    if not given(class_, "spec", "parameters"):
        return found
    parameters, path = members(class_, "spec", "parameters"), "spec.parameters"
    found += _check_reference(parameters, path)
    scope, where = text(parameters, "scope"), child(path, "namespace")
    if scope not in ("Cluster", "Namespace"):
        found.append(not_supported(child(path, "scope"), scope, ("Cluster", "Namespace")))
    elif scope == "Cluster" and given(parameters, "namespace"):
        found.append(forbidden(where, "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and not given(parameters, "namespace"):
        found.append(required(where, "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        found += told(where, text(parameters, "namespace"), formats.dns_label(text(parameters, "namespace")))
    return found


def _check_class_update(new: Object, old: Object, _subresource: str) -> Findings:
    return immutable(text(new, "spec", "controller"), text(old, "spec", "controller"), "spec.controller")


INGRESS_CLASS = Rules(
    defaults=_class_defaults, generation_of=("spec",), check=_check_class, check_update=_check_class_update
)

# --- addresses and networks of services ---


def _check_address(address: Object) -> Findings:
    path = "spec.parentRef"
    if not given(address, "spec", "parentRef"):
        return [required(path)]
    parent = members(address, "spec", "parentRef")
    group = text(parent, "group")
    found = told(child(path, "group"), group, formats.dns_subdomain(group)) if group else []
    for name in ("resource", "name", "namespace"):
        found += named_segment(text(parent, name), child(path, name), needed=name != "namespace")
    return found


def _check_address_update(new: Object, old: Object, _subresource: str) -> Findings:
    return frozen(members(new, "spec").get("parentRef"), members(old, "spec").get("parentRef"), "spec.parentRef")


def _check_networks(object_: Object) -> Findings:
    networks, path = texts(object_, "spec", "cidrs"), "spec.cidrs"
    if not networks:
        return [required(path, "at least one CIDR required")]
    if len(networks) > 2:
        return [invalid(path, {"CIDRs": networks}, "may only hold up to 2 values")]
    found = [
        finding
        for number_, each in enumerate(networks)
        for finding in told(index(path, number_), each, strict_cidr(each))
    ]
    readable = all(parse_network(network) is not None for network in networks)
    if len(networks) == 2 and readable and not are_dual_stack(networks):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        found.append(invalid(path, networks, detail))
    return found


def _check_networks_update(new: Object, old: Object, subresource: str) -> Findings:
    """Networks are immutable; one of the other family may be added."""
    if subresource:
        return []
    networks, before, path = texts(new, "spec", "cidrs"), texts(old, "spec", "cidrs"), "spec.cidrs"
    if len(networks) != len(before) and (len(before), len(networks)) != (1, 2):
        return [invalid(path, networks, IMMUTABLE_TEXT)]
    found = [
        invalid(index(path, position), network, IMMUTABLE_TEXT)
        for position, (network, known) in enumerate(zip(networks, before, strict=False))
        if network != known
    ]
    return found if len(networks) == len(before) else found + _check_networks(new)


IP_ADDRESS = Rules(name_format=strict_ip, check=_check_address, check_update=_check_address_update)
SERVICE_CIDR = Rules(
    initial_status=lambda _: {},
    check=_check_networks,
    recheck=lambda _new, _old: [],
    check_update=_check_networks_update,
)
