"""What a container finds in /etc/hosts and /etc/resolv.conf, as the kubelet writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

_SERVERS_MAX, _SEARCHES_MAX = 3, 32
_OPTIONS = ("ndots:5",)


class Resolving(msgspec.Struct, frozen=True, kw_only=True):
    """How names are found."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def text(self) -> str:
        """The file."""
        lines = [f"nameserver {each}" for each in self.servers[:_SERVERS_MAX]]
        if self.searches:
            lines.append(f"search {' '.join(self.searches[:_SEARCHES_MAX])}")
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
            searches = tuple(rest)
        elif word == "options":
            options += rest
    return Resolving(servers=tuple(servers), searches=searches, options=tuple(options))


def resolving(
    policy: str, own: Resolving, machine: Resolving, cluster: Sequence[str], namespace: str, domain: str
) -> Resolving:
    """What a pod gets. own: its dnsConfig; cluster: where the cluster's names are known, none if nobody knows them."""
    found = machine
    if policy == "None":
        found = Resolving()
    elif policy != "Default" and cluster:
        names = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain)
        found = Resolving(servers=tuple(cluster), searches=(*names, *machine.searches), options=_OPTIONS)
    changed = {each.partition(":")[0] for each in own.options}
    kept = (each for each in found.options if each.partition(":")[0] not in changed)
    return Resolving(
        servers=tuple(dict.fromkeys((*found.servers, *own.servers))),
        searches=tuple(dict.fromkeys((*found.searches, *own.searches))),
        options=(*kept, *own.options),
    )


def hosts_text(ips: Iterable[str], hostname: str, full_name: str, aliases: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The file. full_name: empty if the pod has none; aliases: an address and its names."""
    lines = ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    names = f"{full_name}\t{hostname}" if full_name else hostname
    lines += [f"{ip}\t{names}" for ip in ips]
    more = [f"{ip}\t{chr(9).join(each)}" for ip, each in aliases if each]
    if more:
        lines += ["", "# Entries added by HostAliases.", *more]
    return "".join(f"{line}\n" for line in lines)
