"""Rows of networking.k8s.io and discovery.k8s.io."""

from __future__ import annotations

from allot.apiserver.printing.cells import (
    NONE,
    UNSET,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    is_default,
    items,
    members,
    name_of,
    scalar,
    selector,
    shortened,
    text,
    texts,
)
from allot.apiserver.printing.core import balancer_addresses


def _ingress(ingress: Object, now: Moment) -> Cells:
    spec = members(ingress, "spec")
    hosts = [text(rule, "host") for rule in items(spec, "rules") if text(rule, "host")]
    return [
        name_of(ingress),
        text(spec, "ingressClassName") or NONE,
        shortened(hosts) if hosts else "*",
        ",".join(balancer_addresses(ingress)),
        "80, 443" if items(spec, "tls") else "80",
        now.age(ingress),
    ]


def _ingress_class(class_: Object, now: Moment) -> Cells:
    default = is_default(class_, "ingressclass.kubernetes.io/is-default-class")
    parameters = members(class_, "spec", "parameters")
    shown = NONE
    if parameters:
        group = text(parameters, "apiGroup")
        shown = f"{text(parameters, 'kind')}{f'.{group}' if group else ''}/{text(parameters, 'name')}"
    name = f"{name_of(class_)} (default)" if default else name_of(class_)
    return [name, text(class_, "spec", "controller"), shown, now.age(class_)]


def _address(address: Object, _: Moment) -> Cells:
    parent = members(address, "spec", "parentRef")
    shown = NONE
    if parent:
        group, namespace = text(parent, "group"), text(parent, "namespace")
        resource = f"{text(parent, 'resource')}.{group}" if group else text(parent, "resource")
        shown = f"{resource.lower()}{f'/{namespace}' if namespace else ''}/{text(parent, 'name')}"
    return [name_of(address), shown]


def _endpoint_slice(slice_: Object, now: Moment) -> Cells:
    ports = [scalar(port.get("port")) or text(port, "name") or "*" for port in items(slice_, "ports")]
    addresses = [address for endpoint in items(slice_, "endpoints") for address in texts(endpoint, "addresses")]
    return [
        name_of(slice_),
        text(slice_, "addressType"),
        shortened(ports) if ports else UNSET,
        shortened(addresses) if addresses else UNSET,
        now.age(slice_),
    ]


PRINTERS: dict[tuple[str, str], Printer] = {
    ("networking.k8s.io", "Ingress"): Printer(columns("Name|Class|Hosts|Address|Ports|Age"), _ingress),
    ("networking.k8s.io", "IngressClass"): Printer(columns("Name|Controller|Parameters|Age"), _ingress_class),
    ("networking.k8s.io", "NetworkPolicy"): Printer(
        columns("Name|Pod-Selector|Age"),
        lambda o, now: [name_of(o), selector(members(o, "spec").get("podSelector")), now.age(o)],
    ),
    ("networking.k8s.io", "ServiceCIDR"): Printer(
        columns("Name|CIDRs|Age"), lambda o, now: [name_of(o), ",".join(texts(o, "spec", "cidrs")), now.age(o)]
    ),
    ("networking.k8s.io", "IPAddress"): Printer(columns("Name|ParentRef"), _address),
    ("discovery.k8s.io", "EndpointSlice"): Printer(columns("Name|AddressType|Ports|Endpoints|Age"), _endpoint_slice),
}
