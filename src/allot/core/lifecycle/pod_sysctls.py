"""Which sysctls a pod may set: those limited to its own namespaces, by the kubelet's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from allot.core.model.pods_v1 import RunnablePod

FORBIDDEN = "SysctlForbidden"

# Those that every pod may set: they neither affect anything outside the pod nor use resources of others.
SAFE = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
# What the kernel keeps per namespace.
_OF_IPC, _OF_NETWORK = ("kernel.shm", "kernel.msg", "fs.mqueue."), ("net.",)
_IPC_NAMES = ("kernel.sem",)
# A name becomes a path of /proc/sys.
_PART = r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"({_PART}[./])*{_PART}")


class UnknownNamespace(ValueError):
    """A setting that is not known to be namespaced."""


class SysctlRules(msgspec.Struct, frozen=True, kw_only=True):
    """What pods of a node may set: by name and by name prefix."""

    names: frozenset[str] = SAFE
    prefixes: tuple[str, ...] = ()


def allow_unsafe(patterns: Iterable[str]) -> SysctlRules:
    """The safe ones and these: a name, or a prefix ending with *. UnknownNamespace."""
    names, prefixes = set(SAFE), []
    for pattern in patterns:
        text = _dotted(pattern)
        if not _namespace(text.removesuffix("*"), is_prefix=text.endswith("*")):
            raise UnknownNamespace(
                f"sysctl {pattern!r}: expected one of a namespace: net.*, kernel.shm*, kernel.msg*, ..."
            )
        if text.endswith("*"):
            prefixes.append(text.removesuffix("*"))
        else:
            names.add(text)
    return SysctlRules(names=frozenset(names), prefixes=tuple(prefixes))


def sysctls_of(pod: RunnablePod) -> dict[str, str]:
    """The sysctls of a pod, with dots between the parts of names."""
    context = pod.spec.security_context
    return {_dotted(each.name): each.value for each in context.sysctls} if context is not None else {}


def forbidden_sysctl(pod: RunnablePod, rules: SysctlRules) -> str:
    """Why a pod cannot run, with the kubelet's message; empty if it can."""
    for name in sysctls_of(pod):
        if not _NAME.fullmatch(name) or (name not in rules.names and not name.startswith(rules.prefixes)):
            return f'forbidden sysctl: "{name}" not allowlisted'
        namespace = _namespace(name)
        if (namespace == "ipc" and pod.spec.host_ipc) or (namespace == "net" and pod.spec.host_network):
            return f'forbidden sysctl: "{name}" not allowed with host {namespace} enabled'
    return ""


def _dotted(name: str) -> str:
    """A name separated by slashes may have dots inside its parts, and vice versa."""
    first = next((letter for letter in name if letter in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def _namespace(name: str, *, is_prefix: bool = False) -> str:
    """The namespace of a setting: ipc, net, or empty if it is machine-wide."""
    if name.startswith(_OF_NETWORK):
        return "net"
    if name.startswith(_OF_IPC) or (not is_prefix and name in _IPC_NAMES):
        return "ipc"
    return ""
