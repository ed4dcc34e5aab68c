"""DNS settings of pods for runtimes: name servers, and the mounted hosts file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from allot.core.lifecycle.pods import pod_title
from allot.core.model.pods_v1 import RunnablePod
from allot.core.network.pod_files import (
    HostNames,
    Resolving,
    asks_cluster,
    hosts_text,
    machine_hosts_text,
    resolving,
    within_limits,
)
from allot.core.network.ranges import DOMAIN
from allot.network.resolvers import machine_resolving
from allot.node.pod_folders import replace_file
from allot.node.reports import Reports

HOSTS = "/etc/hosts"
_FILE = "etc-hosts"


class NameOptions(msgspec.Struct, frozen=True, kw_only=True):
    """DNS settings. servers: the cluster's name servers; machine: the file with the machine's DNS settings."""

    servers: tuple[str, ...] = ()
    domain: str = DOMAIN
    machine: Path | None = Path("/etc/resolv.conf")


def own_resolving(pod: RunnablePod) -> Resolving:
    """What the pod itself specifies."""
    dns = pod.spec.dns_config
    if dns is None:
        return Resolving()
    return Resolving(
        servers=dns.nameservers,
        searches=dns.searches,
        options=tuple(f"{each.name}:{each.value}" if each.value else each.name for each in dns.options),
    )


class PodNames:
    """The DNS settings of a pod's containers; reports deviations from the request."""

    def __init__(self, options: NameOptions, reports: Reports) -> None:
        self.options = options
        self._reports = reports

    def resolving(self, pod: RunnablePod) -> Resolving:
        """The content of a pod's resolv.conf."""
        options, spec = self.options, pod.spec
        policy = spec.dns_policy or "ClusterFirst"
        if not options.servers and asks_cluster(policy, host_network=spec.host_network):
            text = (
                f'pod: "{pod_title(pod)}". the agent does not have ClusterDNS IP configured and cannot create Pod using '
                '"ClusterFirst" policy. Falling back to "Default" policy.'
            )
            self._reports.tell(pod, "Warning", "MissingClusterDNS", text)
        wanted = resolving(
            policy,
            own_resolving(pod),
            self._machine(),
            options.servers,
            pod.metadata.namespace,
            options.domain,
            host_network=spec.host_network,
        )
        found, notes = within_limits(wanted)
        for note in notes:
            self._reports.tell(pod, "Warning", "DNSConfigForming", note)
        return found

    def _machine(self) -> Resolving:
        path = self.options.machine
        # A machine configured without name servers asks itself, in vain.
        return machine_resolving(path) if path is not None else Resolving(servers=("127.0.0.1",), searches=(".",))

    def write_hosts(self, pod: RunnablePod, names: HostNames, ips: tuple[str, ...], folder: Path) -> Path:
        """Write the hosts file of a pod, for each container; returns its path. OSError. folder: the pod's own."""
        aliases = [(each.ip, each.hostnames) for each in pod.spec.host_aliases]
        if pod.spec.host_network:
            try:
                machine = Path(HOSTS).read_text(errors="replace")
            except FileNotFoundError:
                machine = ""
            text = machine_hosts_text(machine, aliases)
        else:
            text = hosts_text(ips, names.hostname, names.full_name, aliases)
        return replace_file(folder, _FILE, text.encode(), 0o644)
