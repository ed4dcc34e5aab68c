"""Services.

The server allocates cluster IPs and node ports; the rules check what a client requested. Not covered: dual stack
(a second address is checked, not allocated).
"""

from __future__ import annotations

from allot.core.validation import formats
from allot.core.validation.addresses import (
    are_dual_stack,
    cidr_warnings,
    endpoint_ip,
    family,
    ip_warnings,
    legacy_cidr,
    legacy_ip,
    parse_address,
)
from allot.core.validation.builtin.checks import (
    PROTOCOLS,
    check_labels,
    duplicate_of,
    one_of,
    port_number,
    port_number_or_name,
    told,
)
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    copied,
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
from allot.core.validation.fields import Findings, child, duplicate, forbidden, index, invalid, not_supported, required

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_INTERNAL_TYPES = ("ClusterIP", "LoadBalancer", "NodePort")
_FAMILIES = ("IPv4", "IPv6")
_IP_MODES = ("Proxy", "VIP")
_AFFINITY_SECONDS = 10800
_AFFINITY_SECONDS_MAX = 86400
NONE = "None"


def _is_external(spec: Object) -> bool:
    return text(spec, "type") in ("LoadBalancer", "NodePort") or (
        text(spec, "type") == "ClusterIP" and bool(texts(spec, "externalIPs"))
    )


def _needs_health_check(spec: Object) -> bool:
    return text(spec, "type") == "LoadBalancer" and text(spec, "externalTrafficPolicy") == "Local"


def _defaults(service: Object) -> None:
    spec = present(service, "spec")
    fill_text(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP" and not given(
        spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds"
    ):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in items(spec, "ports"):
        fill_text(port, protocol="TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port")
    if _is_external(spec):
        fill_text(spec, externalTrafficPolicy="Cluster")
    if spec["type"] in _INTERNAL_TYPES:
        fill(spec, internalTrafficPolicy="Cluster")
    if spec["type"] == "LoadBalancer":
        fill(spec, allocateLoadBalancerNodePorts=True)
        for ingress in items(service, "status", "loadBalancer", "ingress"):
            if text(ingress, "ip"):
                fill(ingress, ipMode="VIP")


def _linked_addresses(service: Object) -> None:
    """clusterIP and the first of clusterIPs are the same; clients write either."""
    spec = members(service, "spec")
    address, addresses = text(spec, "clusterIP"), texts(spec, "clusterIPs")
    if address and not addresses:
        spec["clusterIPs"] = [address]
    elif addresses and not address:
        spec["clusterIP"] = addresses[0]


def _prepare_update(new: Object, old: Object, subresource: str) -> None:
    if subresource:
        return
    spec, before = members(new, "spec"), members(old, "spec")
    kept = text(spec, "type") != "ExternalName" and text(before, "type") != "ExternalName"
    if kept:
        # Allocated values stay if a client omits them.
        if not text(spec, "clusterIP") and not texts(spec, "clusterIPs") and text(before, "clusterIP"):
            spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], copied(before.get("clusterIPs"))
        elif text(spec, "clusterIP") == text(before, "clusterIP") and not texts(spec, "clusterIPs"):
            spec["clusterIPs"] = copied(before.get("clusterIPs"))
        elif text(spec, "clusterIP") and texts(spec, "clusterIPs") == texts(before, "clusterIPs"):
            # Written by a client that knows only clusterIP.
            spec["clusterIPs"] = [spec["clusterIP"], *texts(spec, "clusterIPs")[1:]]
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if not spec.get(name) and before.get(name):
                spec[name] = copied(before[name])
        _kept_node_ports(spec, before)
    elif text(spec, "type") == "ExternalName" and text(before, "type") != "ExternalName":
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    _linked_addresses(new)


def _kept_node_ports(spec: Object, before: Object) -> None:
    if text(spec, "type") not in ("NodePort", "LoadBalancer"):
        if text(before, "type") in ("NodePort", "LoadBalancer"):
            known = {_integer(port, "nodePort") for port in items(before, "ports")}
            for port in items(spec, "ports"):
                if port.get("nodePort") in known:
                    port.pop("nodePort", None)
        return
    ports = {(text(port, "protocol"), port.get("port")): port.get("nodePort") for port in items(before, "ports")}
    for port in items(spec, "ports"):
        if not port.get("nodePort"):
            node_port = ports.get((text(port, "protocol"), port.get("port")))
            if node_port:
                port["nodePort"] = node_port


def _integer(value: Object, name: str) -> int:
    return number(value, name) or 0


# --- rules ---


def _check(service: Object) -> Findings:
    return _recheck(service, {})


def _recheck(service: Object, old: Object) -> Findings:
    """All rules except those for changes; stored addresses may keep their spelling."""
    spec, before = members(service, "spec"), members(old, "spec")
    type_, addresses, ports = text(spec, "type"), texts(spec, "clusterIPs"), items(spec, "ports")
    headless = addresses == [NONE]
    found: Findings = []
    if not ports and not headless and type_ != "ExternalName":
        found.append(required("spec.ports"))
    if headless and type_ in ("LoadBalancer", "NodePort"):
        detail = f"may not be set to 'None' for {type_} services"
        found.append(invalid("spec.clusterIPs[0]", NONE, detail))
    if type_ == "ExternalName":
        found += _check_external_name(spec)
    names: set[str] = set()
    for position, port in enumerate(ports):
        found += _check_port(port, len(ports) > 1, names, index("spec.ports", position))
    selector = {name: value for name, value in members(spec, "selector").items() if isinstance(value, str)}
    found += check_labels(selector, "spec.selector")
    found += _check_affinity(spec)
    if type_ != "ExternalName":
        found += _check_addresses(spec, addresses, frozenset(texts(before, "clusterIPs")))
    known = frozenset(texts(before, "externalIPs"))
    for position, address in enumerate(texts(spec, "externalIPs")):
        messages = legacy_ip(address) if address not in known else []
        found += told(index("spec.externalIPs", position), address, messages or endpoint_ip(address))
    found += one_of(spec, "type", _TYPES, "spec", needed=True)
    found += _check_ports_together(ports, type_)
    return found + _check_load_balancer(service, old) + _check_traffic(spec)


def _check_external_name(spec: Object) -> Findings:
    found = [
        forbidden(child("spec", name), "may not be set for ExternalName services")
        for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
        if spec.get(name)
    ]
    name = text(spec, "externalName").removesuffix(".")
    if not name:
        return [*found, required("spec.externalName")]
    return found + told("spec.externalName", name, formats.dns_subdomain(name))


def _check_port(port: Object, needs_name: bool, names: set[str], path: str) -> Findings:
    found: Findings = []
    name = text(port, "name")
    if name:
        found += told(child(path, "name"), name, formats.dns_label(name))
        if name in names:
            found.append(duplicate(child(path, "name"), name))
        names.add(name)
    elif needs_name:
        found.append(required(child(path, "name")))
    found += told(child(path, "port"), _integer(port, "port"), port_number(_integer(port, "port")))
    found += one_of(port, "protocol", PROTOCOLS, path, needed=True)
    found += port_number_or_name(port.get("targetPort"), child(path, "targetPort"))
    if given(port, "appProtocol"):
        found += told(
            child(path, "appProtocol"), text(port, "appProtocol"), formats.label_key(text(port, "appProtocol"))
        )
    return found


def _check_affinity(spec: Object) -> Findings:
    found = one_of(spec, "sessionAffinity", ("ClientIP", "None"), "spec", needed=True)
    path = "spec.sessionAffinityConfig"
    if text(spec, "sessionAffinity") == "ClientIP":
        seconds = number(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds")
        where = f"{path}.clientIP.timeoutSeconds"
        if seconds is None:
            found.append(required(where, "when session affinity type is ClientIP"))
        elif not 0 < seconds <= _AFFINITY_SECONDS_MAX:
            detail = f"must be greater than 0 and less than {_AFFINITY_SECONDS_MAX}"
            found.append(invalid(where, seconds, detail))
    elif given(spec, "sessionAffinityConfig"):
        found.append(forbidden(path, "must not be set when session affinity is None"))
    return found


def _check_addresses(spec: Object, addresses: list[str], known: frozenset[str]) -> Findings:
    found: Findings = []
    address = text(spec, "clusterIP")
    if address and addresses and addresses[0] != address:
        found.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    elif not address and addresses:
        found.append(invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified"))
    families = texts(spec, "ipFamilies")
    seen = set()
    for position, wanted in enumerate(families):
        where = index("spec.ipFamilies", position)
        if wanted not in _FAMILIES:
            found.append(not_supported(where, wanted, _FAMILIES))
        if wanted in seen:
            found.append(duplicate(where, wanted))
        seen.add(wanted)
    found += one_of(spec, "ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack"), "spec")
    unreadable: Findings = []
    for position, item in enumerate(addresses):
        if position == 0 and item == NONE:
            if len(addresses) > 1:
                unreadable.append(invalid("spec.clusterIPs", addresses, "'None' must be the first and only value"))
        elif item not in known:
            unreadable += told(index("spec.clusterIPs", position), item, legacy_ip(item))
    found += unreadable
    if len(addresses) > 2:
        found.append(invalid("spec.clusterIPs", addresses, "may only hold up to 2 values"))
    if unreadable:
        return found
    if len(addresses) > 1 and not are_dual_stack(addresses):
        found.append(invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family"))
    if addresses != [NONE]:
        for position, (item, wanted) in enumerate(zip(addresses, families, strict=False)):
            where = index("spec.clusterIPs", position)
            if wanted in _FAMILIES and family(item) != (4 if wanted == "IPv4" else 6):
                detail = f"expected an {wanted} value as indicated by `ipFamilies[{position}]`"
                found.append(invalid(where, item, detail))
    return found


def _check_ports_together(ports: list[Object], type_: str) -> Findings:
    found: Findings = []
    if type_ == "ClusterIP":
        for position, port in enumerate(ports):
            if port.get("nodePort"):
                where = child(index("spec.ports", position), "nodePort")
                found.append(forbidden(where, "may not be used when `type` is 'ClusterIP'"))
    node_ports, numbers = set(), set()
    for position, port in enumerate(ports):
        where, protocol = index("spec.ports", position), text(port, "protocol")
        node_port = (protocol, _integer(port, "nodePort"))
        if node_port[1] and node_port in node_ports:
            found.append(duplicate(child(where, "nodePort"), node_port[1]))
        node_ports.add(node_port)
        number_ = (protocol, _integer(port, "port"))
        if number_ in numbers:
            shown = {
                "Name": "",
                "Protocol": protocol,
                "AppProtocol": None,
                "Port": number_[1],
                "TargetPort": 0,
                "NodePort": 0,
            }
            found.append(duplicate_of(where, shown))
        numbers.add(number_)
    return found


_RANGES_ANNOTATION = "service.beta.kubernetes.io/load-balancer-source-ranges"


def _check_load_balancer(service: Object, old: Object) -> Findings:
    spec = members(service, "spec")
    found: Findings = []
    balanced = text(spec, "type") == "LoadBalancer"
    only = "may only be used when `type` is 'LoadBalancer'"
    ranges = texts(spec, "loadBalancerSourceRanges")
    if ranges and not balanced:
        found.append(forbidden("spec.LoadBalancerSourceRanges", only))
    known = {network.strip() for network in texts(old, "spec", "loadBalancerSourceRanges")}
    for position, network in enumerate(each.strip() for each in ranges):
        if network not in known:
            found += told(index("spec.LoadBalancerSourceRanges", position), network, legacy_cidr(network))
    annotated = members(service, "metadata", "annotations").get(_RANGES_ANNOTATION)
    if not ranges and isinstance(annotated, str):
        found += _check_annotated_ranges(annotated, members(old, "metadata", "annotations"), balanced=balanced)
    if given(spec, "allocateLoadBalancerNodePorts") and not balanced:
        found.append(forbidden("spec.allocateLoadBalancerNodePorts", only))
    if given(spec, "loadBalancerClass"):
        class_ = text(spec, "loadBalancerClass")
        if balanced:
            found += told("spec.loadBalancerClass", class_, formats.label_key(class_))
        else:
            found.append(forbidden("spec.loadBalancerClass", only))
    return found


def _check_annotated_ranges(annotated: str, before: Object, *, balanced: bool) -> Findings:
    where = f"metadata.annotations[{_RANGES_ANNOTATION}]"
    found = [] if balanced else [forbidden(where, "may only be used when `type` is 'LoadBalancer'")]
    if annotated.strip() and before.get(_RANGES_ANNOTATION) != annotated:
        for network in annotated.strip().split(","):
            found += told(where, network.strip(), legacy_cidr(network.strip()))
    return found


def _check_traffic(spec: Object) -> Findings:
    found: Findings = []
    external, policy = _is_external(spec), text(spec, "externalTrafficPolicy")
    if not external and policy:
        detail = "may only be set for externally-accessible services"
        found.append(invalid("spec.externalTrafficPolicy", policy, detail))
    elif external:
        found += one_of(spec, "externalTrafficPolicy", ("Cluster", "Local"), "spec", needed=True)
    health_port = _integer(spec, "healthCheckNodePort")
    if health_port and not _needs_health_check(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.append(invalid("spec.healthCheckNodePort", health_port, detail))
    elif health_port:
        found += told("spec.healthCheckNodePort", health_port, port_number(health_port))
    found += one_of(spec, "internalTrafficPolicy", ("Cluster", "Local"), "spec")
    distributions = ("PreferClose", "PreferSameNode", "PreferSameZone")
    return found + one_of(spec, "trafficDistribution", distributions, "spec")


def _check_status(service: Object, old: Object) -> Findings:
    """Where a load balancer can be reached."""
    path, ingresses = "status.loadBalancer.ingress", items(service, "status", "loadBalancer", "ingress")
    if ingresses and text(service, "spec", "type") != "LoadBalancer":
        return [forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    known = {text(ingress, "ip") for ingress in items(old, "status", "loadBalancer", "ingress")}
    found: Findings = []
    for position, ingress in enumerate(ingresses):
        where, address, name = index(path, position), text(ingress, "ip"), text(ingress, "hostname")
        if address and address not in known:
            found += told(child(where, "ip"), address, legacy_ip(address))
        if given(ingress, "ipMode") and not address:
            found.append(forbidden(child(where, "ipMode"), "may not be specified when `ip` is not set"))
        elif address and not given(ingress, "ipMode"):
            found.append(required(child(where, "ipMode"), "must be specified when `ip` is set"))
        elif given(ingress, "ipMode") and text(ingress, "ipMode") not in _IP_MODES:
            found.append(not_supported(child(where, "ipMode"), text(ingress, "ipMode"), _IP_MODES))
        if name:
            found += told(child(where, "hostname"), name, formats.dns_subdomain(name))
            if parse_address(name) is not None:
                found.append(invalid(child(where, "hostname"), name, "must be a DNS name, not an IP address"))
    return found


def _check_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return _check_status(new, old) if subresource == "status" else []
    spec, before = members(new, "spec"), members(old, "spec")
    found: Findings = []
    if "ExternalName" not in (text(spec, "type"), text(before, "type")):
        addresses, known = texts(spec, "clusterIPs"), texts(before, "clusterIPs")
        if known and not addresses:
            found.append(invalid("spec.clusterIPs[0]", addresses, "primary clusterIP can not be unset"))
        for position, (address, earlier) in enumerate(zip(addresses, known, strict=False)):
            if address != earlier:
                found.append(invalid(index("spec.clusterIPs", position), addresses, "may not change once set"))
    if text(spec, "type") == text(before, "type") == "LoadBalancer":
        class_, known_class = spec.get("loadBalancerClass"), before.get("loadBalancerClass")
        if class_ != known_class:
            found.append(invalid("spec.loadBalancerClass", class_, "may not change once set"))
    known_port = _integer(before, "healthCheckNodePort")
    if known_port and _needs_health_check(spec) and _integer(spec, "healthCheckNodePort") != known_port:
        found.append(forbidden("spec.healthCheckNodePort", "field is immutable"))
    return found


def _warnings(service: Object) -> tuple[str, ...]:
    spec = members(service, "spec")
    found: list[str] = []
    addresses, external, type_ = texts(spec, "clusterIPs"), texts(spec, "externalIPs"), text(spec, "type")
    headless = type_ == "ClusterIP" and text(spec, "clusterIP") == NONE
    for position, address in enumerate(addresses if addresses != [NONE] and type_ != "ExternalName" else ()):
        found += ip_warnings(index("spec.clusterIPs", position), address)
    if headless:
        ignored = {
            "spec.loadBalancerIP": bool(text(spec, "loadBalancerIP")),
            "spec.externalIPs": bool(external),
            "spec.SessionAffinity": text(spec, "sessionAffinity") != "None",
        }
        found += [f"{name} is ignored for headless services" for name, is_set in ignored.items() if is_set]
    for position, address in enumerate(external):
        found += ip_warnings(index("spec.externalIPs", position), address)
    if external and not headless and type_ != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    found += ip_warnings("spec.loadBalancerIP", text(spec, "loadBalancerIP"))
    for position, network in enumerate(texts(spec, "loadBalancerSourceRanges")):
        found += cidr_warnings(index("spec.loadBalancerSourceRanges", position), network)
    if type_ == "ExternalName" and external:
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if type_ != "ExternalName" and text(spec, "externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if text(spec, "trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return tuple(found)


SERVICE = Rules(
    name_format=formats.dns_label,
    defaults=_defaults,
    initial_status=lambda _: {"loadBalancer": {}},
    prepare_create=_linked_addresses,
    prepare_update=_prepare_update,
    check=_check,
    recheck=_recheck,
    check_update=_check_update,
    warnings=_warnings,
)
