"""A pod as its node's agent reads it: `core_v1.Pod` plus everything about how containers run.

Only read, never written back: status goes to the API as a patch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.model.codec import decode_served, without_managed_fields
from allot.core.model.containers_v1 import ConfinementProfile, RunnableContainer
from allot.core.model.core_v1 import Pod, PodSpec
from allot.core.model.meta import Int64, PartialStruct
from allot.core.model.volumes_v1 import RunnableVolume


class Sysctl(PartialStruct, frozen=True, kw_only=True):
    """A kernel setting, in the pod's own namespaces."""

    name: str = ""
    value: str = ""


class PodSecurityContext(PartialStruct, frozen=True, kw_only=True):
    """Security settings for containers that do not set their own."""

    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    fs_group: Int64 | None = None
    supplemental_groups: tuple[Int64, ...] = ()
    supplemental_groups_policy: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    seccomp_profile: ConfinementProfile | None = None
    app_armor_profile: ConfinementProfile | None = None


class PodOS(PartialStruct, frozen=True, kw_only=True):
    """The operating system of a pod's programs."""

    name: str = ""


class PodReadinessGate(PartialStruct, frozen=True, kw_only=True):
    """A condition set by another component."""

    condition_type: str = ""


class PodDNSConfigOption(PartialStruct, frozen=True, kw_only=True):
    """An option of the resolver."""

    name: str = ""
    value: str | None = None


class PodDNSConfig(PartialStruct, frozen=True, kw_only=True):
    """How a pod resolves names."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(PartialStruct, frozen=True, kw_only=True):
    """Names for an address, in a pod's own hosts file."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class LocalObjectReference(PartialStruct, frozen=True, kw_only=True):
    """A secret with credentials for images."""

    name: str = ""


class RunnablePodSpec(PodSpec, frozen=True, kw_only=True):
    """What a pod runs, and how. Where a field has a default other than nothing, it is the API server's."""

    volumes: tuple[RunnableVolume, ...] = ()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    init_containers: tuple[RunnableContainer, ...] = ()
    containers: tuple[RunnableContainer, ...] = ()
    ephemeral_containers: tuple[RunnableContainer, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 = 30
    active_deadline_seconds: Int64 | None = None
    service_account_name: str = ""
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    share_process_namespace: bool = False
    security_context: PodSecurityContext | None = None
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    runtime_class_name: str = ""
    os: PodOS | None = None
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    host_aliases: tuple[HostAlias, ...] = ()
    enable_service_links: bool = True
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    hostname_override: str | None = None


class RunnablePod(Pod, frozen=True, kw_only=True):
    """A pod with everything that its node needs to run it."""

    spec: RunnablePodSpec = RunnablePodSpec()

    def containers(self) -> tuple[RunnableContainer, ...]:
        """All containers, in the order in which they are reported."""
        return (*self.spec.init_containers, *self.spec.containers, *self.spec.ephemeral_containers)

    def container(self, name: str) -> RunnableContainer | None:
        """The container of a name."""
        return next((each for each in self.containers() if each.name == name), None)


def decode_runnable(value: dict[str, Any]) -> RunnablePod:
    """A pod from the JSON value that the API server sends; DecodeError if invalid."""
    return decode_served(without_managed_fields(value), RunnablePod)
