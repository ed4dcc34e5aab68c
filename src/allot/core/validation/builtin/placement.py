"""Where pods may run: affinity to nodes and other pods, tolerations, spreading, DNS and host names.

Not covered: label keys that pod affinity merges into selectors beyond their form.
"""

from __future__ import annotations

from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import NodeSelector
from allot.core.validation import formats
from allot.core.validation.addresses import legacy_ip
from allot.core.validation.builtin.checks import label_selector, one_of, told
from allot.core.validation.builtin.values import Object, given, items, members, number, text, texts
from allot.core.validation.fields import (
    Findings,
    child,
    duplicate,
    forbidden,
    go_json,
    index,
    invalid,
    not_supported,
    required,
)
from allot.core.validation.node_selectors import check_node_selector

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_POSITIVE_TEXT = "must be greater than zero"
_NAMESERVERS_MAX = 3
_SEARCHES_MAX = 32
_SEARCHES_LENGTH_MAX = 2048
_DNS_POLICIES = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")


def check_affinity(affinity: Object, path: str) -> Findings:
    """Affinity of a pod."""
    found: Findings = []
    node = members(affinity, "nodeAffinity")
    if given(node, _REQUIRED):
        found += _check_node_selector(members(node, _REQUIRED), child(path, "nodeAffinity", _REQUIRED))
    for position, term in enumerate(items(node, _PREFERRED)):
        where = index(child(path, "nodeAffinity", _PREFERRED), position)
        found += _check_weight(term, where)
        found += _check_term(members(term, "preference"), child(where, "preference"))
    for name in ("podAffinity", "podAntiAffinity"):
        pods = members(affinity, name)
        for position, term in enumerate(items(pods, _REQUIRED)):
            found += _check_pod_term(term, index(child(path, name, _REQUIRED), position))
        for position, term in enumerate(items(pods, _PREFERRED)):
            where = index(child(path, name, _PREFERRED), position)
            found += _check_weight(term, where)
            found += _check_pod_term(members(term, "podAffinityTerm"), child(where, "podAffinityTerm"))
    return found


def _check_weight(term: Object, path: str) -> Findings:
    weight = number(term, "weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(child(path, "weight"), weight, "must be in the range 1-100")]


def _check_node_selector(selector: Object, path: str) -> Findings:
    try:
        typed = decode(selector, NodeSelector).object
    except DecodeError:
        return []
    return check_node_selector(typed, path)


def _check_term(term: Object, path: str) -> Findings:
    """A single term is checked as a selector with one term, and the paths are adjusted."""
    found = _check_node_selector({"nodeSelectorTerms": [term]}, "?")
    moved = []
    for finding in found:
        error = finding.error
        field = error.field.replace("?.nodeSelectorTerms[0]", path, 1)
        moved.append(type(finding)(type(error)(field, error.type, error.message)))
    return moved


def _check_pod_term(term: Object, path: str) -> Findings:
    found: Findings = []
    for name in ("labelSelector", "namespaceSelector"):
        if given(term, name):
            found += label_selector(term[name], child(path, name))
    for namespace in texts(term, "namespaces"):
        found += told(child(path, "namespace"), namespace, formats.dns_label(namespace))
    for name in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = texts(term, name)
        if keys and not given(term, "labelSelector"):
            found.append(forbidden(child(path, name), "must not be specified when labelSelector is not set"))
        for position, key in enumerate(keys):
            found += told(index(child(path, name), position), key, formats.label_key(key))
    topology = text(term, "topologyKey")
    if not topology:
        found.append(required(child(path, "topologyKey"), "can not be empty"))
    return found + told(child(path, "topologyKey"), topology, formats.label_key(topology))


# --- tolerations ---


def check_tolerations(tolerations: list[Object], path: str) -> Findings:
    """Tolerations of a pod."""
    found: Findings = []
    for position, toleration in enumerate(tolerations):
        where = index(path, position)
        key, operator, value, effect = (text(toleration, name) for name in ("key", "operator", "value", "effect"))
        found += told(child(where, "key"), key, formats.label_key(key)) if key else []
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(child(where, "operator"), operator, detail))
        if given(toleration, "tolerationSeconds") and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(child(where, "effect"), effect, detail))
        if operator in ("Equal", ""):
            messages = formats.label_value(value)
            found += [invalid(child(where, "operator"), value, ";".join(messages))] if messages else []
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                found.append(invalid(child(where, "operator"), value, detail))
        else:
            found.append(not_supported(child(where, "operator"), operator, ("Equal", "Exists")))
        if effect and effect not in _EFFECTS:
            found.append(not_supported(child(where, "effect"), effect, _EFFECTS))
    return found


def check_tolerations_update(new: list[Object], old: list[Object], path: str) -> Findings:
    """Tolerations may be added, and their duration may change."""

    def without_seconds(toleration: Object) -> str:
        kept = {name: value for name, value in toleration.items() if name != "tolerationSeconds" and value is not None}
        return go_json(dict(sorted(kept.items())))

    if {without_seconds(toleration) for toleration in old} <= {without_seconds(toleration) for toleration in new}:
        return []
    return [forbidden(path, "existing toleration can not be modified except its tolerationSeconds")]


# --- spreading ---


def check_spreading(constraints: list[Object], path: str) -> Findings:
    """Topology spread constraints."""
    found: Findings = []
    last = {(text(o, "topologyKey"), text(o, "whenUnsatisfiable")): position for position, o in enumerate(constraints)}
    for position, constraint in enumerate(constraints):
        where = index(path, position)
        skew, domains = number(constraint, "maxSkew") or 0, number(constraint, "minDomains")
        topology, action = text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable")
        if skew <= 0:
            found.append(invalid(child(where, "maxSkew"), skew, _POSITIVE_TEXT))
        if not topology:
            found.append(required(child(where, "topologyKey"), "can not be empty"))
        supported = ("DoNotSchedule", "ScheduleAnyway")
        if action not in supported:
            found.append(not_supported(child(where, "whenUnsatisfiable"), action, supported))
        if last[topology, action] > position:
            place = child(where, "{topologyKey, whenUnsatisfiable}")
            found.append(duplicate(place, f"{{{topology}, {action}}}"))
        if domains is not None:
            if domains <= 0:
                found.append(invalid(child(where, "minDomains"), domains, _POSITIVE_TEXT))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                found.append(invalid(child(where, "minDomains"), domains, detail))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            found += one_of(constraint, name, ("Honor", "Ignore"), where)
        if given(constraint, "labelSelector"):
            found += label_selector(constraint["labelSelector"], child(where, "labelSelector"))
    return found


# --- names and addresses ---


def check_dns(spec: Object, path: str) -> Findings:
    """DNS policy and configuration."""
    found = one_of(spec, "dnsPolicy", _DNS_POLICIES, path, needed=True)
    where, config = child(path, "dnsConfig"), members(spec, "dnsConfig")
    servers, searches = texts(config, "nameservers"), texts(config, "searches")
    if text(spec, "dnsPolicy") == "None":
        if not given(spec, "dnsConfig"):
            return [*found, required(where, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [*found, required(child(where, "nameservers"), detail)]
    if len(servers) > _NAMESERVERS_MAX:
        detail = f"must not have more than {_NAMESERVERS_MAX} nameservers"
        found.append(invalid(child(where, "nameservers"), servers, detail))
    for position, server in enumerate(servers):
        found += told(index(child(where, "nameservers"), position), server, legacy_ip(server))
    if len(searches) > _SEARCHES_MAX:
        detail = f"must not have more than {_SEARCHES_MAX} search paths"
        found.append(invalid(child(where, "searches"), searches, detail))
    if len(" ".join(searches)) > _SEARCHES_LENGTH_MAX:
        detail = f"must not have more than {_SEARCHES_LENGTH_MAX} characters (including spaces) in the search list"
        found.append(invalid(child(where, "searches"), searches, detail))
    for position, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            found += told(
                index(child(where, "searches"), position), name, formats.dns_subdomain(name.replace("_", "a"))
            )
    for position, option in enumerate(items(config, "options")):
        if not text(option, "name"):
            found.append(required(index(child(where, "options"), position), "must not be empty"))
    return found


def check_host_aliases(aliases: list[Object], path: str) -> Findings:
    """Entries for the hosts file."""
    found: Findings = []
    for position, alias in enumerate(aliases):
        where = index(path, position)
        found += told(child(where, "ip"), text(alias, "ip"), legacy_ip(text(alias, "ip")))
        for number_, name in enumerate(texts(alias, "hostnames")):
            found += told(index(child(where, "hostnames"), number_), name, formats.dns_subdomain(name))
    return found
