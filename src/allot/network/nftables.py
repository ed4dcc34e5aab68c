"""Kernel rules for packets to Services, through nf_tables over netlink: one table that only we change.

The table belongs to the socket that created it: the kernel removes it when the process ends, however that happens, and lets no
other process change it. A change is one transaction with only the differences. Other tables are never written; their names are
read to detect another implementation of Services.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from allot.core.network.packet_rules import Dnat, Drop, Goto, Mark, Place, Remember, Rule, Ruleset
from allot.network.netfilter import (
    ACK,
    APPEND,
    CREATE,
    GENERIC,
    HEAD,
    IS_ERROR,
    REQUEST,
    NetfilterSocket,
    attribute,
    error_code,
    nested,
    number,
    parsed,
    signed,
    text,
    word,
)

_SUBSYSTEM = 10
_BEGIN, _END = 16, 17

_NEW_TABLE, _NEW_CHAIN, _GET_CHAIN, _DELETE_CHAIN, _NEW_RULE, _DELETE_RULE = 0, 3, 4, 5, 6, 8
_NEW_SET, _DELETE_SET, _NEW_ELEMENT, _DELETE_ELEMENT = 9, 11, 12, 14
_OWNER = 0x2
_MAP, _TIMEOUT, _DYNAMIC = 0x8, 0x10, 0x20
_VERDICT_TYPE = 0xFFFFFF00
_DROP, _JUMP, _GOTO = 0, -3, -4
# Registers: the verdict, and four bytes each from here on.
_VERDICT, _R0, _R1 = 0, 8, 9
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_META_MARK, _META_L4PROTO = 3, 16
_NEW_CONNECTION = 8
_LOCAL = 2
# Tables for both IPv4 and IPv6.
_INET = 1
_PREROUTING, _INPUT, _FORWARD, _OUTPUT, _POSTROUTING = range(5)
_BEFORE_ROUTING, _FILTER, _AFTER_ROUTING = -100, 0, 100
# The packet mark's bit for masquerading: kube-proxy's, which network plugins leave alone.
_MASQUERADE = 0x4000
_PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP}

_PODS, _ADDRESSES, _PLACES, _OUTSIDE, _NODE_PORTS = "pods", "addresses", "places", "outside", "node-ports"
# Chains of other implementations of Services: kube-proxy with nftables, and with iptables over nftables.
_FOREIGN_TABLES, _FOREIGN_CHAINS = ("kube-proxy",), ("KUBE-SERVICES",)


class Chain(NamedTuple):
    """Any chain. drops_forwarded: whether it drops forwarded IPv4 packets that it does not accept."""

    table: str
    name: str
    drops_forwarded: bool = False


class ServiceRules:
    """Our table in the current network namespace. OSError says what the kernel refused."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._socket = NetfilterSocket()
        # Sets also have a number that identifies them within their transaction.
        self._set_number = 0
        self._rules = Ruleset()
        self._pods: frozenset[str] = frozenset()
        self._is_made = False

    def close(self) -> None:
        """The kernel removes the table."""
        self._socket.close()

    def foreign(self) -> str:
        """Another implementation of Services on this node; empty if there is none."""
        for each in self.chains():
            if each.table in _FOREIGN_TABLES or each.name in _FOREIGN_CHAINS:
                return f"kube-proxy (chain {each.name} in table {each.table})"
        return ""

    def drops_forwarded(self) -> str:
        """A foreign chain that drops forwarded packets unless accepted; empty if there is none."""
        found = (each for each in self.chains() if each.drops_forwarded and each.table != self._table)
        return next((f"chain {each.name} in table {each.table}" for each in found), "")

    def set_pods(self, addresses: Iterable[str]) -> None:
        """The addresses of the node's pods: only they and the node itself reach the addresses of Services."""
        wanted = frozenset(addresses)
        batch = self._begin()
        batch += [
            self._elements(_NEW_ELEMENT, _PODS, [_element(_address(each))]) for each in sorted(wanted - self._pods)
        ]
        batch += [
            self._elements(_DELETE_ELEMENT, _PODS, [_element(_address(each))]) for each in sorted(self._pods - wanted)
        ]
        self._commit(batch)
        self._pods = wanted

    def apply(self, rules: Ruleset) -> None:
        """Replace all rules atomically."""
        old = self._rules
        batch = self._begin()
        new_chains = [name for name in rules.chains if name not in old.chains]
        over = [name for name in old.chains if name not in rules.chains]
        batch += [self._set(name, 4, timeout_s=seconds) for name, seconds in _added(rules.sets, old.sets)]
        batch += [self._chain(name) for name in new_chains]
        for name in rules.chains:
            if rules.chains[name] != old.chains.get(name):
                batch += [] if name in new_chains else [self._flush(name)]
                batch += [self._rule(name, _expressions(each)) for each in rules.chains[name]]
        batch += self._map_changes(_PLACES, _place_key, old.places, rules.places)
        batch += self._map_changes(_OUTSIDE, _place_key, old.outside, rules.outside)
        batch += self._map_changes(_NODE_PORTS, _port_key, old.node_ports, rules.node_ports)
        gone, come = set(old.addresses) - set(rules.addresses), set(rules.addresses) - set(old.addresses)
        batch += [self._elements(_DELETE_ELEMENT, _ADDRESSES, [_element(_address(each))]) for each in sorted(gone)]
        batch += [self._elements(_NEW_ELEMENT, _ADDRESSES, [_element(_address(each))]) for each in sorted(come)]
        batch += [self._flush(name) for name in over]
        batch += [self._message(_DELETE_CHAIN, text(1, self._table), text(3, name)) for name in over]
        batch += [
            self._message(_DELETE_SET, text(1, self._table), text(2, name)) for name, _ in _added(old.sets, rules.sets)
        ]
        self._commit(batch)
        self._rules = rules

    # --- the table ---

    def _begin(self) -> list[bytes]:
        """The start of a transaction: the first time, the table itself with its constant parts."""
        if self._is_made:
            return []
        table = self._message(_NEW_TABLE, text(1, self._table), number(2, _OWNER), flags=CREATE)
        batch = [table, self._set(_PODS, 4), self._set(_ADDRESSES, 4), self._set(_PLACES, 12, is_map=True)]
        batch += [self._set(_OUTSIDE, 12, is_map=True), self._set(_NODE_PORTS, 8, is_map=True)]
        batch += [self._chain(name) for name in ("services", "outside", "refused")]
        for name, kind, hook, priority in (
            ("prerouting", "nat", _PREROUTING, _BEFORE_ROUTING),
            ("output", "nat", _OUTPUT, _BEFORE_ROUTING),
            ("postrouting", "nat", _POSTROUTING, _AFTER_ROUTING),
            ("filter-forward", "filter", _FORWARD, _FILTER),
            ("filter-output", "filter", _OUTPUT, _FILTER),
        ):
            batch.append(self._chain(name, kind, hook, priority))
        of_pod = _load(_R0, _NETWORK_HEADER, 12, 4) + _look_up(_PODS, _R0)
        batch += [
            # The address of a Service takes precedence over all others that lead to one.
            self._rule("prerouting", of_pod + _go(_JUMP, "services")),
            self._rule("prerouting", _go(_JUMP, "outside")),
            self._rule("output", _go(_JUMP, "services")),
            self._rule("output", _go(_JUMP, "outside")),
            self._rule("services", _place_of_packet() + _look_up(_PLACES, _R0, _VERDICT)),
            self._rule("outside", _place_of_packet() + _look_up(_OUTSIDE, _R0, _VERDICT)),
            self._rule("outside", _to_node() + _port_of_packet(_R0) + _look_up(_NODE_PORTS, _R0, _VERDICT)),
            self._rule("postrouting", _if_marked() + _expression("masq")),
            self._rule("filter-forward", _if_new() + of_pod + _go(_JUMP, "refused")),
            self._rule("filter-output", _if_new() + _go(_JUMP, "refused")),
            # The destination of served packets has been translated by now.
            self._rule("refused", _load(_R0, _NETWORK_HEADER, 16, 4) + _look_up(_ADDRESSES, _R0) + _reject()),
        ]
        return batch

    def _chain(self, name: str, kind: str = "", hook: int = 0, priority: int = 0) -> bytes:
        parts = [text(1, self._table), text(3, name)]
        if kind:
            parts += [nested(4, number(1, hook), signed(2, priority)), text(7, kind)]
        return self._message(_NEW_CHAIN, *parts, flags=CREATE)

    def _set(self, name: str, key_bytes: int, *, is_map: bool = False, timeout_s: int = 0) -> bytes:
        flags = (_MAP if is_map else 0) | (_TIMEOUT | _DYNAMIC if timeout_s else 0)
        self._set_number += 1
        parts = [text(1, self._table), text(2, name), number(3, flags), number(4, 0), number(5, key_bytes)]
        if is_map:
            parts += [number(6, _VERDICT_TYPE), number(7, 0)]
        parts.append(number(10, self._set_number))
        if timeout_s:
            parts.append(attribute(11, struct.pack("!Q", timeout_s * 1000)))
        return self._message(_NEW_SET, *parts, flags=CREATE)

    def _rule(self, chain: str, expressions: bytes) -> bytes:
        return self._message(
            _NEW_RULE,
            text(1, self._table),
            text(2, chain),
            nested(4, expressions),
            flags=CREATE | APPEND,
        )

    def _flush(self, chain: str) -> bytes:
        return self._message(_DELETE_RULE, text(1, self._table), text(2, chain))

    def _elements(self, kind: int, set_: str, elements: list[bytes]) -> bytes:
        return self._message(
            kind,
            text(1, self._table),
            text(2, set_),
            nested(3, *elements),
            flags=CREATE if kind == _NEW_ELEMENT else 0,
        )

    def _map_changes(
        self, name: str, key: Callable[[Any], bytes], old: Mapping[Any, str], new: Mapping[Any, str]
    ) -> Iterator[bytes]:
        for place, _ in _added(old, new):
            yield self._elements(_DELETE_ELEMENT, name, [_element(key(place))])
        for place, chain in _added(new, old):
            yield self._elements(_NEW_ELEMENT, name, [_element(key(place), chain)])

    # --- the kernel ---

    def _message(self, kind: int, *attributes: bytes, flags: int = 0) -> bytes:
        return self._socket.message(_SUBSYSTEM, kind, socket.AF_INET, b"".join(attributes), flags=flags)

    def _commit(self, batch: list[bytes]) -> None:
        """Send one transaction: all of it, or nothing and OSError."""
        if not batch:
            return
        edge = GENERIC.pack(socket.AF_UNSPEC, 0, _SUBSYSTEM)
        # Only the last one is answered, unless one fails.
        size, kind, flags, last, port = HEAD.unpack_from(batch[-1])
        batch[-1] = HEAD.pack(size, kind, flags | ACK, last, port) + batch[-1][HEAD.size :]
        begin, end = (HEAD.pack(HEAD.size + len(edge), each, REQUEST, 0, 0) + edge for each in (_BEGIN, _END))
        self._socket.send(b"".join((begin, *batch, end)))
        first = 0
        for kind, about, body in self._socket.answers():
            if kind != IS_ERROR:
                continue
            first = first or error_code(body)
            if about in (0, last):
                break
        if first:
            raise OSError(first, os.strerror(first).lower())
        self._is_made = True

    def chains(self) -> Iterator[Chain]:
        """All chains of all families."""
        yield from map(_chain_of, self._socket.dump(_SUBSYSTEM, _GET_CHAIN, socket.AF_UNSPEC))


def _added(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [(name, value) for name, value in one.items() if other.get(name) != value]


# --- expressions ---


def _expressions(rule: Rule) -> bytes:
    match rule:
        case Dnat():
            return _dnat(rule.address, rule.port)
        case Goto():
            return _condition(rule) + _go(_GOTO, rule.chain)
        case Mark():
            source = b""
            if rule.source:
                source = _load(_R0, _NETWORK_HEADER, 12, 4) + _compare(_R0, _address(rule.source))
            return source + _mark()
        case Remember():
            return _load(_R0, _NETWORK_HEADER, 12, 4) + _expression(
                "dynset", text(1, rule.set), number(3, 1), number(4, _R0)
            )
        case Drop():
            return _go(_DROP)


def _condition(rule: Goto) -> bytes:
    if rule.source:
        address, _, bits = rule.source.partition("/")
        mask = (0xFFFFFFFF << 32 - int(bits)) & 0xFFFFFFFF
        network = _load(_R0, _NETWORK_HEADER, 12, 4) + _masked(_R0, socket.htonl(mask))
        return network + _compare(_R0, _address(address))
    if rule.remembered:
        return _load(_R0, _NETWORK_HEADER, 12, 4) + _look_up(rule.remembered, _R0)
    if rule.one_in > 1:
        return _expression("numgen", number(1, _R0), number(2, rule.one_in), number(3, 1)) + _compare(_R0, bytes(4))
    return b""


def _load(register: int, header: int, offset: int, size: int) -> bytes:
    return _expression("payload", number(1, register), number(2, header), number(3, offset), number(4, size))


def _compare(register: int, value: bytes, *, is_other: bool = False) -> bytes:
    return _expression("cmp", number(1, register), number(2, int(is_other)), nested(3, attribute(1, value)))


def _look_up(set_: str, register: int, into: int | None = None) -> bytes:
    found = b"" if into is None else number(3, into)
    return _expression("lookup", text(1, set_), number(2, register), found)


def _meta(key: int, register: int) -> bytes:
    return _expression("meta", number(1, register), number(2, key))


def _port_of_packet(register: int) -> bytes:
    """Protocol and port, in two registers."""
    return _meta(_META_L4PROTO, register) + _load(register + 1, _TRANSPORT_HEADER, 2, 2)


def _place_of_packet() -> bytes:
    """Address, protocol and port, in three registers."""
    return _load(_R0, _NETWORK_HEADER, 16, 4) + _port_of_packet(_R1)


def _to_node() -> bytes:
    """Packets for an address of the node but not of the loopback, which could not be answered."""
    is_local = _expression("fib", number(1, _R0), number(2, 3), number(3, 2)) + _compare(_R0, struct.pack("=I", _LOCAL))
    return is_local + _load(_R0, _NETWORK_HEADER, 16, 1) + _compare(_R0, bytes((127,)), is_other=True)


def _if_new() -> bytes:
    return (
        _expression("ct", number(1, _R0), number(2, 0))
        + _masked(_R0, _NEW_CONNECTION)
        + _compare(_R0, bytes(4), is_other=True)
    )


def _if_marked() -> bytes:
    return _meta(_META_MARK, _R0) + _masked(_R0, _MASQUERADE) + _compare(_R0, bytes(4), is_other=True)


def _masked(register: int, mask: int, flip: int = 0) -> bytes:
    return _expression(
        "bitwise",
        number(1, register),
        number(2, register),
        number(3, 4),
        nested(4, attribute(1, struct.pack("=I", mask))),
        nested(5, attribute(1, struct.pack("=I", flip))),
    )


def _mark() -> bytes:
    set_ = _expression("meta", number(2, _META_MARK), number(3, _R0))
    return _meta(_META_MARK, _R0) + _masked(_R0, 0xFFFFFFFF ^ _MASQUERADE, _MASQUERADE) + set_


def _dnat(address: str, port: int) -> bytes:
    values = _immediate(_R0, attribute(1, _address(address))) + _immediate(_R1, attribute(1, struct.pack("!H", port)))
    return values + _expression("nat", number(1, 1), number(2, socket.AF_INET), number(3, _R0), number(5, _R1))


def _reject() -> bytes:
    # ICMP, port unreachable: connections are refused at once.
    return _expression("reject", number(1, 0), attribute(2, bytes((3,))))


def _go(code: int, chain: str = "") -> bytes:
    return _immediate(_VERDICT, _verdict(code, chain))


def _verdict(code: int, chain: str = "") -> bytes:
    return nested(2, signed(1, code), text(2, chain) if chain else b"")


def _immediate(register: int, data: bytes) -> bytes:
    return _expression("immediate", number(1, register), nested(2, data))


def _expression(name: str, *attributes: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *attributes))


# --- elements of sets ---


def _element(key: bytes, chain: str = "") -> bytes:
    return nested(1, nested(1, attribute(1, key)), nested(2, _verdict(_GOTO, chain)) if chain else b"")


def _place_key(place: Place) -> bytes:
    return _address(place[0]) + _port_key(place[1:])


def _port_key(place: tuple[str, int]) -> bytes:
    """As registers hold it: each part in four bytes."""
    return struct.pack("=B3xH2x", _PROTOCOLS[place[0]], socket.htons(place[1]))


def _address(text: str) -> bytes:
    return socket.inet_aton(text)


def _chain_of(answer: bytes) -> Chain:
    family = answer[0]
    attributes = parsed(answer[GENERIC.size :])
    hook = parsed(attributes.get(4, b"")).get(1)
    is_forward = family in (_INET, socket.AF_INET) and hook == struct.pack("!I", _FORWARD)
    drops = attributes.get(5) == struct.pack("!I", _DROP)
    return Chain(word(attributes.get(1, b"")), word(attributes.get(3, b"")), is_forward and drops)
