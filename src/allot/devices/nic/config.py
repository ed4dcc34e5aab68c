"""The driver's parameters: NetworkConfig, without apiVersion and kind, as dranet's."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

import msgspec

from allot.driver import ConfigKind

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
INTERFACE_NAME_LENGTH_MAX = 15
_MTU_MIN, _MTU_MAX = 68, 65535
_SCOPE_UNIVERSE, _SCOPE_LINK = 0, 253


class ParametersError(ValueError):
    """Parameters with invalid values."""


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Parameters, camelCase."""


class InterfaceConfig(_Parameters, frozen=True, kw_only=True):
    """The interface as the pod sees it."""

    name: str = ""
    addresses: tuple[str, ...] = ()
    dhcp: bool | None = None
    mtu: int | None = None
    hardware_addr: str | None = None
    gso_max_size: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = msgspec.field(default=None, name="gsoIPv4MaxSize")
    gro_ipv4_max_size: int | None = msgspec.field(default=None, name="groIPv4MaxSize")
    disable_ebpf_programs: bool | None = None


class RouteConfig(_Parameters, frozen=True, kw_only=True):
    """A route of the pod."""

    destination: str = ""
    gateway: str = ""
    source: str = ""
    scope: int = _SCOPE_UNIVERSE
    table: int = 0


class RuleConfig(_Parameters, frozen=True, kw_only=True):
    """A routing rule of the pod."""

    priority: int = 0
    source: str = ""
    destination: str = ""
    table: int = 0


class NeighborConfig(_Parameters, frozen=True, kw_only=True):
    """A static neighbour entry."""

    destination: str = ""
    hardware_addr: str = ""


class EthtoolConfig(_Parameters, frozen=True, kw_only=True):
    """Ethtool settings of the card."""

    features: Mapping[str, bool] = {}
    private_flags: Mapping[str, bool] = {}


class NetworkConfig(_Parameters, frozen=True, kw_only=True):
    """The settings that a claim requests for an interface."""

    interface: InterfaceConfig = InterfaceConfig()
    routes: tuple[RouteConfig, ...] = ()
    rules: tuple[RuleConfig, ...] = ()
    neighbors: tuple[NeighborConfig, ...] = ()
    ethtool: EthtoolConfig | None = None


KINDS = (ConfigKind("", "", NetworkConfig),)


def check_config(config: NetworkConfig) -> None:
    """ParametersError names every invalid value."""
    found = [
        *_check_interface(config.interface),
        *(text for index, route in enumerate(config.routes) for text in _check_route(route, f"routes[{index}]")),
        *(text for index, rule in enumerate(config.rules) for text in _check_rule(rule, f"rules[{index}]")),
    ]
    for index, neighbor in enumerate(config.neighbors):
        where = f"neighbors[{index}]"
        found += _check_address(neighbor.destination, f"{where}.destination")
        found += _check_hardware_address(neighbor.hardware_addr, f"{where}.hardwareAddr")
    if found:
        raise ParametersError("; ".join(found))


def _check_interface(interface: InterfaceConfig) -> list[str]:
    found = []
    name = interface.name
    is_name = len(name) <= INTERFACE_NAME_LENGTH_MAX and not re.search(r"[/\s:]", name) and name not in (".", "..")
    if name and not is_name:
        found.append(
            f"interface.name: {name[:40]!r}, expected at most {INTERFACE_NAME_LENGTH_MAX} characters without / : or spaces"
        )
    for index, address in enumerate(interface.addresses):
        found += _check_prefix(address, f"interface.addresses[{index}]")
    if interface.dhcp and interface.addresses:
        found.append("interface.dhcp: true, expected no addresses besides it")
    if interface.mtu is not None and not _MTU_MIN <= interface.mtu <= _MTU_MAX:
        found.append(f"interface.mtu: {interface.mtu}, expected {_MTU_MIN} to {_MTU_MAX}")
    if interface.hardware_addr is not None:
        found += _check_hardware_address(interface.hardware_addr, "interface.hardwareAddr")
    for field, size in (
        ("gsoMaxSize", interface.gso_max_size),
        ("groMaxSize", interface.gro_max_size),
        ("gsoIPv4MaxSize", interface.gso_ipv4_max_size),
        ("groIPv4MaxSize", interface.gro_ipv4_max_size),
    ):
        if size is not None and size <= 0:
            found.append(f"interface.{field}: {size}, expected more than 0")
    return found


def _check_route(route: RouteConfig, where: str) -> list[str]:
    found = _check_prefix(route.destination, f"{where}.destination")
    if route.scope not in (_SCOPE_UNIVERSE, _SCOPE_LINK):
        found.append(f"{where}.scope: {route.scope}, expected {_SCOPE_UNIVERSE} (universe) or {_SCOPE_LINK} (link)")
    if route.scope == _SCOPE_UNIVERSE and not route.gateway:
        found.append(f"{where}.gateway: expected an address, since the scope is {_SCOPE_UNIVERSE} (universe)")
    if route.gateway:
        found += _check_address(route.gateway, f"{where}.gateway")
    if route.source:
        found += _check_address(route.source, f"{where}.source")
    return found + _check_table(route.table, where)


def _check_rule(rule: RuleConfig, where: str) -> list[str]:
    found = []
    if rule.source:
        found += _check_prefix(rule.source, f"{where}.source")
    if rule.destination:
        found += _check_prefix(rule.destination, f"{where}.destination")
    return found + _check_table(rule.table, where)


def _check_table(table: int, where: str) -> list[str]:
    return [] if 0 <= table < 2**32 else [f"{where}.table: {table}, expected 0 to {2**32 - 1}"]


def _check_prefix(text: str, where: str) -> list[str]:
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return [f"{where}: {text[:60]!r}, expected an address with a prefix such as 10.0.0.1/24"]
    return [] if "/" in text else [f"{where}: {text!r}, expected an address with a prefix such as 10.0.0.1/24"]


def _check_address(text: str, where: str) -> list[str]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return [f"{where}: {text[:60]!r}, expected an IP address"]
    return []


def _check_hardware_address(text: str, where: str) -> list[str]:
    return [] if _MAC.fullmatch(text) else [f"{where}: {text[:60]!r}, expected six bytes such as 02:00:00:00:00:01"]
