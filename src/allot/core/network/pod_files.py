"""A container's /etc/hosts and /etc/resolv.conf, and its pod's host name, as in the kubelet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_SERVERS_MAX = 3
_SEARCHES_MAX, _SEARCH_LENGTH_MAX, _SEARCH_LINE_MAX = 32, 253, 2048
_OPTIONS = ("ndots:5",)
_HOSTNAME_LENGTH_MAX = 63
# The kernel's own limit for what a machine is called.
_FULL_NAME_LENGTH_MAX = 64

Aliases = Iterable[tuple[str, Sequence[str]]]


class BadHostname(ValueError):
    """A pod that cannot be called what it wants, in the kubelet's words."""


# --- resolv.conf ---


class Resolving(msgspec.Struct, frozen=True, kw_only=True):
    """How names are found."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def text(self) -> str:
        """The file."""
        lines = [f"nameserver {each}" for each in self.servers]
        if self.searches:
            lines.append(f"search {' '.join(self.searches)}")
        if self.options:
            lines.append(f"options {' '.join(self.options)}")
        return "".join(f"{each}\n" for each in lines)


def parse_resolving(text: str) -> Resolving:
    """A resolv.conf; of several searches the last counts, as in the C library."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: list[str] = []
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver" and rest:
            servers.append(rest[0])
        elif word in ("search", "domain"):
            # The same domain with and without its last dot counts once.
            searches = tuple(each if each == "." else each.removesuffix(".") for each in rest)
        elif word == "options":
            options += rest
    return Resolving(servers=tuple(servers), searches=searches, options=tuple(options))


def asks_cluster(policy: str, *, host_network: bool) -> bool:
    """Whether a pod wants to know the cluster's names."""
    return policy == "ClusterFirstWithHostNet" or (policy not in ("Default", "None") and not host_network)


def resolving(
    policy: str,
    own: Resolving,
    machine: Resolving,
    cluster: Sequence[str],
    namespace: str,
    domain: str,
    *,
    host_network: bool = False,
) -> Resolving:
    """What a pod wants. own: its dnsConfig; cluster: where the cluster's names are known, none if no one knows them."""
    found = machine
    if policy == "None":
        found = Resolving()
    elif cluster and asks_cluster(policy, host_network=host_network):
        names = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain)
        found = Resolving(servers=tuple(cluster), searches=(*names, *machine.searches), options=_OPTIONS)
    changed = {each.partition(":")[0] for each in own.options}
    kept = (each for each in found.options if each.partition(":")[0] not in changed)
    return Resolving(
        servers=tuple(dict.fromkeys((*found.servers, *own.servers))),
        searches=tuple(dict.fromkeys((*found.searches, *own.searches))),
        options=(*kept, *own.options),
    )


def within_limits(wanted: Resolving) -> tuple[Resolving, tuple[str, ...]]:
    """What of it resolvers can bear, and what people are told about the rest."""
    notes = []
    servers = wanted.servers[:_SERVERS_MAX]
    if servers != wanted.servers:
        applied = " ".join(servers)
        notes.append(
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {applied}"
        )
    searches = tuple(each for each in wanted.searches[:_SEARCHES_MAX] if len(each) <= _SEARCH_LENGTH_MAX)
    while len(" ".join(searches)) > _SEARCH_LINE_MAX:
        searches = searches[:-1]
    if searches != wanted.searches:
        applied = " ".join(searches)
        notes.append(
            f"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {applied}"
        )
    return msgspec.structs.replace(wanted, servers=servers, searches=searches), tuple(notes)


# --- what a pod is called ---


class HostNames(msgspec.Struct, frozen=True, kw_only=True):
    """hostname: what the pod calls itself; full_name: with its subdomain, empty without; kernel: what its kernel says."""

    hostname: str
    full_name: str = ""
    kernel: str


def host_names(
    name: str, namespace: str, domain: str, *, hostname: str, subdomain: str, as_full: bool, override: str | None
) -> HostNames:
    """From what a pod says. as_full: setHostnameAsFQDN; override: hostnameOverride, which replaces all of it. BadHostname."""
    if override is not None:
        return HostNames(hostname=override, kernel=override)
    short = (hostname or name)[:_HOSTNAME_LENGTH_MAX].rstrip("-.")
    full = f"{short}.{subdomain}.{namespace}.svc.{domain}" if subdomain else ""
    if full and as_full and len(full) > _FULL_NAME_LENGTH_MAX:
        raise BadHostname(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long "
            f"({_FULL_NAME_LENGTH_MAX} characters is the max, {len(full)} characters requested)"
        )
    return HostNames(hostname=short, full_name=full, kernel=full if full and as_full else short)


# --- hosts ---


def hosts_text(ips: Iterable[str], hostname: str, full_name: str, aliases: Aliases) -> str:
    """The file of a pod with addresses of its own. full_name: empty if it has none; aliases: an address and its names."""
    lines = [
        "# Kubernetes-managed hosts file.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
    ]
    names = f"{full_name}\t{hostname}" if full_name else hostname
    lines += [f"{ip}\t{names}" for ip in ips]
    return "".join(f"{line}\n" for line in lines) + _alias_lines(aliases)


def machine_hosts_text(machine: str, aliases: Aliases) -> str:
    """The file of a pod in the machine's network. machine: the machine's own file."""
    return f"# Kubernetes-managed hosts file (host network).\n{machine}{_alias_lines(aliases)}"


def _alias_lines(aliases: Aliases) -> str:
    lines = [f"{ip}\t{chr(9).join(names)}" for ip, names in aliases if names]
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in ("", "# Entries added by HostAliases.", *lines))
