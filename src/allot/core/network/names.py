"""The names of a cluster, as Kubernetes' DNS specification 1.1.0 has them: Services, their ports, pods behind them, and back from addresses.

SERVICE.NAMESPACE.svc.cluster.local                  A     the address of the Service, or those of all that are behind a headless one
HOST.SERVICE.NAMESPACE.svc.cluster.local             A     a pod behind a headless Service, by its host name or its address with dashes
_PORT._PROTOCOL.SERVICE.NAMESPACE.svc.cluster.local  SRV   a port by its name
1-2-3-4.NAMESPACE.pod.cluster.local                  A     an address of a pod
4.3.2.1.in-addr.arpa                                 PTR   a Service, or a pod behind a headless one
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from allot.core.network.dns_messages import ANY, CNAME, PTR, SOA, SRV, TXT, A, Name, Record, encode_name, name_of
from allot.core.network.ranges import (
    DOMAIN,
    PODS,
    PODS_BITS,
    SERVICES,
    SERVICES_BITS,
    is_in,
    number_of,
)
from allot.core.network.routes import Endpoint, ServiceRoutes

SECONDS = 5
VERSION = "1.1.0"
_ZONE = tuple(DOMAIN.split("."))
_REVERSE = ("in-addr", "arpa")
_CHAIN_MAX = 8
_SOA_TIMES = struct.pack(">IIIII", 1, 7200, 1800, 86400, SECONDS)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a name means. exists: whether there is such a name at all; leads_to: a name of others that it is another word for."""

    records: tuple[Record, ...] = ()
    exists: bool = True
    leads_to: str = ""


_NOTHING = Reply()
_NO_SUCH_NAME = Reply(exists=False)


class Directory:
    """All names."""

    def __init__(self) -> None:
        self._services: dict[tuple[str, str], ServiceRoutes] = {}
        self._namespaces: Counter[str] = Counter()
        # Address -> names.
        self._names: dict[str, set[str]] = {}

    def update(self, namespace: str, name: str, routes: ServiceRoutes | None) -> None:
        """A Service has changed, or is gone."""
        before = self._services.pop((namespace, name), None)
        if before is not None:
            self._namespaces[namespace] -= 1
            for address, host in _reverse_of(before):
                self._names.get(address, set()).discard(host)
        if routes is not None:
            self._services[namespace, name] = routes
            self._namespaces[namespace] += 1
            for address, host in _reverse_of(routes):
                self._names.setdefault(address, set()).add(host)

    def keys(self) -> set[str]:
        """namespace/name of all Services."""
        return {f"{namespace}/{name}" for namespace, name in self._services}

    def find(self, labels: tuple[str, ...], type_: int) -> Reply | None:
        """What a name means; None if it is not ours to say."""
        if labels[-2:] == _ZONE:
            return self._inside(labels[:-2], type_)
        if labels[-2:] == _REVERSE:
            return self._backwards(labels[:-2], type_)
        return None

    def _inside(self, labels: tuple[str, ...], type_: int) -> Reply:
        if not labels:
            return _only(type_, SOA, authority().data)
        if labels == ("dns-version",):
            return _only(type_, TXT, bytes((len(VERSION),)) + VERSION.encode())
        *rest, kind = labels
        if not rest:
            return _NOTHING if kind in ("svc", "pod") else _NO_SUCH_NAME
        if kind == "pod":
            return self._pod(tuple(rest), type_)
        return self._service(tuple(rest), type_) if kind == "svc" else _NO_SUCH_NAME

    def _pod(self, labels: tuple[str, ...], type_: int) -> Reply:
        if not self._namespaces[labels[-1]]:
            return _NO_SUCH_NAME
        if len(labels) == 1:
            return _NOTHING
        address = labels[0].replace("-", ".")
        if len(labels) > 2 or number_of(address) < 0 or "." in labels[0]:
            return _NO_SUCH_NAME
        return _addresses(type_, (address,))

    def _service(self, labels: tuple[str, ...], type_: int) -> Reply:
        if len(labels) == 1:
            return _NOTHING if self._namespaces[labels[0]] else _NO_SUCH_NAME
        found = self._services.get((labels[-1], labels[-2]))
        if found is None:
            return _NO_SUCH_NAME
        if len(labels) == 2:
            return self._itself(found, type_)
        if len(labels) == 3:
            behind = [each.address for each in found.hosts if host_label(each) == labels[0]]
            if behind:
                return _addresses(type_, behind)
            # A name in between: `_tcp.web.default.svc`.
            protocols = {f"_{each.protocol.lower()}" for each in found.ports if each.name}
            return _NOTHING if labels[0] in protocols else _NO_SUCH_NAME
        if len(labels) == 4:
            return self._ports(found, type_, labels[0], labels[1])
        return _NO_SUCH_NAME

    def _itself(self, routes: ServiceRoutes, type_: int) -> Reply:
        if routes.external_name:
            return self._other_word(routes, type_)
        if type_ == SRV:
            return Reply(records=tuple(_srv(routes, None, None)))
        if routes.address:
            return _addresses(type_, (routes.address,))
        return _addresses(type_, [each.address for each in routes.hosts])

    def _other_word(self, routes: ServiceRoutes, type_: int) -> Reply:
        records: list[Record] = []
        owner: Name | None = None
        target = routes.external_name.removesuffix(".").lower()
        for _ in range(_CHAIN_MAX):
            try:
                name = name_of(target)
            except ValueError:
                return _NOTHING
            records.append(Record(CNAME, encode_name(name), SECONDS, owner))
            owner = name
            labels = tuple(target.split("."))
            if labels[-2:] != _ZONE or type_ == CNAME:
                return Reply(records=tuple(records), leads_to="" if type_ == CNAME else target)
            following = (
                self._services.get((labels[-4], labels[-5])) if labels[-3] == "svc" and len(labels) == 5 else None
            )
            if following is None or not following.external_name:
                found = self._inside(labels[:-2], type_)
                named = (msgspec.structs.replace(each, name=owner) for each in found.records)
                return Reply(records=(*records, *named))
            target = following.external_name.removesuffix(".").lower()
        return _NOTHING

    def _ports(self, routes: ServiceRoutes, type_: int, port: str, protocol: str) -> Reply:
        found = tuple(_srv(routes, port, protocol))
        if not found:
            return _NO_SUCH_NAME
        return Reply(records=found) if type_ in (SRV, ANY) else _NOTHING

    def _backwards(self, labels: tuple[str, ...], type_: int) -> Reply | None:
        address = ".".join(reversed(labels))
        names = sorted(self._names.get(address, ()))
        if not names:
            # Pods may have other addresses, of which others may know more.
            is_ours = is_in(address, SERVICES, SERVICES_BITS) or is_in(address, PODS, PODS_BITS)
            return _NO_SUCH_NAME if len(labels) == 4 and is_ours else None
        if type_ not in (PTR, ANY):
            return _NOTHING
        return Reply(records=tuple(Record(PTR, encode_name(name_of(each)), SECONDS) for each in names))


def authority() -> Record:
    """Who says that there is nothing, and for how long."""
    names = encode_name(name_of(f"ns.dns.{DOMAIN}")) + encode_name(name_of(f"hostmaster.{DOMAIN}"))
    return Record(SOA, names + _SOA_TIMES, SECONDS, name_of(DOMAIN))


def host_label(endpoint: Endpoint) -> str:
    """What a pod is called below a headless Service."""
    return endpoint.hostname.lower() or endpoint.address.replace(".", "-")


def _full_name(routes: ServiceRoutes) -> str:
    return f"{routes.name}.{routes.namespace}.svc.{DOMAIN}"


def _reverse_of(routes: ServiceRoutes) -> Iterator[tuple[str, str]]:
    if routes.address:
        yield routes.address, _full_name(routes)
    for each in routes.hosts:
        if each.hostname:
            yield each.address, f"{each.hostname.lower()}.{_full_name(routes)}"


def _srv(routes: ServiceRoutes, port: str | None, protocol: str | None) -> Iterator[Record]:
    """Those of a port by its name, or of all that have one."""
    own = _full_name(routes)
    for each in routes.ports:
        if port is None and not each.name:
            continue
        if port is not None and (f"_{each.name}" != port or f"_{each.protocol.lower()}" != protocol):
            continue
        if routes.address:
            yield _srv_record(each.port, own)
            continue
        numbers = {endpoint.address: endpoint.port for endpoint in each.endpoints}
        for host in routes.hosts:
            yield _srv_record(numbers.get(host.address, each.port), f"{host_label(host)}.{own}")


def _srv_record(port: int, target: str) -> Record:
    return Record(SRV, struct.pack(">HHH", 0, 100, port) + encode_name(name_of(target)), SECONDS)


def _addresses(type_: int, addresses: Sequence[str]) -> Reply:
    if type_ not in (A, ANY):
        return _NOTHING
    numbers = (number_of(each) for each in addresses)
    return Reply(records=tuple(Record(A, each.to_bytes(4), SECONDS) for each in numbers if each >= 0))


def _only(asked: int, type_: int, data: bytes) -> Reply:
    return Reply(records=(Record(type_, data, SECONDS),)) if asked in (type_, ANY) else _NOTHING
