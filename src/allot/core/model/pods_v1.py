"""Pods as the agent of a node reads them: everything that says how containers run.

`core_v1.Pod` has what a choice of node depends on; this has commands, environment, volumes, probes and hooks. Only read,
never written back: status goes to the API as a patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.model.core_v1 import (
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    ResourceRequirements,
)
from allot.core.model.meta import PartialStruct
from allot.core.quantity import Quantity

# A number, or the name of a port.
IntOrString = int | str


class Metadata(PartialStruct, frozen=True, kw_only=True):
    """What the agent reads of a pod's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


# --- environment ---


class KeySelector(PartialStruct, frozen=True, kw_only=True):
    """A key of a config map or secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldRef(PartialStruct, frozen=True, kw_only=True):
    """A field of the pod."""

    api_version: str = "v1"
    field_path: str = ""


class ResourceFieldRef(PartialStruct, frozen=True, kw_only=True):
    """What a container asks for or may use."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class EnvSource(PartialStruct, frozen=True, kw_only=True):
    """Where the value of a variable comes from."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(PartialStruct, frozen=True, kw_only=True):
    """A variable."""

    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class EnvFromRef(PartialStruct, frozen=True, kw_only=True):
    """A config map or secret whose keys become variables."""

    name: str = ""
    optional: bool = False


class EnvFrom(PartialStruct, frozen=True, kw_only=True):
    """Many variables at once."""

    prefix: str = ""
    config_map_ref: EnvFromRef | None = None
    secret_ref: EnvFromRef | None = None


# --- probes and hooks ---


class ExecAction(PartialStruct, frozen=True, kw_only=True):
    """A command in the container."""

    command: tuple[str, ...] = ()


class Header(PartialStruct, frozen=True, kw_only=True):
    """A header of a request."""

    name: str = ""
    value: str = ""


class HttpAction(PartialStruct, frozen=True, kw_only=True):
    """A request to the container."""

    path: str = "/"
    port: IntOrString = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[Header, ...] = ()


class SocketAction(PartialStruct, frozen=True, kw_only=True):
    """A connection to the container."""

    port: IntOrString = 0
    host: str = ""


class SleepAction(PartialStruct, frozen=True, kw_only=True):
    """A pause."""

    seconds: int = 0


class GrpcAction(PartialStruct, frozen=True, kw_only=True):
    """A question to the health service of a port."""

    port: int = 0
    service: str = ""


class Probe(PartialStruct, frozen=True, kw_only=True):
    """How to find out how a container is."""

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    tcp_socket: SocketAction | None = None
    grpc: GrpcAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Hook(PartialStruct, frozen=True, kw_only=True):
    """What is done after a start or before a stop."""

    exec: ExecAction | None = None
    http_get: HttpAction | None = None
    tcp_socket: SocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(PartialStruct, frozen=True, kw_only=True):
    """The hooks of a container."""

    post_start: Hook | None = None
    pre_stop: Hook | None = None
    stop_signal: str = ""


# --- containers ---


class Port(PartialStruct, frozen=True, kw_only=True):
    """A port of a container."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class VolumeMount(PartialStruct, frozen=True, kw_only=True):
    """A volume in a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str = ""


class Capabilities(PartialStruct, frozen=True, kw_only=True):
    """What a container may do beyond, or not at all."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class ConfinementProfile(PartialStruct, frozen=True, kw_only=True):
    """Which system calls (seccomp) or files (AppArmor) a container may use: RuntimeDefault, Unconfined or Localhost."""

    type: str = ""
    localhost_profile: str = ""


class SecurityContext(PartialStruct, frozen=True, kw_only=True):
    """As whom a container runs."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    privileged: bool = False
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    seccomp_profile: ConfinementProfile | None = None
    app_armor_profile: ConfinementProfile | None = None


class Container(PartialStruct, frozen=True, kw_only=True):
    """A container, init container or ephemeral container."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    ports: tuple[Port, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = "File"
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    restart_policy: str | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False

    @property
    def is_sidecar(self) -> bool:
        """Whether an init container of this kind runs beside the others."""
        return self.restart_policy == "Always"


# --- volumes ---


class KeyToPath(PartialStruct, frozen=True, kw_only=True):
    """A key and the file that it becomes."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDir(PartialStruct, frozen=True, kw_only=True):
    """A folder that lives as long as the pod."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPath(PartialStruct, frozen=True, kw_only=True):
    """A file or folder of the node."""

    path: str = ""
    type: str = ""


class ConfigMapSource(PartialStruct, frozen=True, kw_only=True):
    """Files from a config map."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class SecretSource(PartialStruct, frozen=True, kw_only=True):
    """Files from a secret; in a projected volume it is called `name`."""

    secret_name: str = ""
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int | None = None
    optional: bool = False


class DownwardFile(PartialStruct, frozen=True, kw_only=True):
    """A file with a field of the pod."""

    path: str = ""
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardSource(PartialStruct, frozen=True, kw_only=True):
    """Files with fields of the pod."""

    items: tuple[DownwardFile, ...] = ()
    default_mode: int | None = None


class TokenSource(PartialStruct, frozen=True, kw_only=True):
    """A file with a token of the pod's service account."""

    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class Projection(PartialStruct, frozen=True, kw_only=True):
    """One source of a projected volume."""

    secret: SecretSource | None = None
    config_map: ConfigMapSource | None = None
    downward_api: DownwardSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenSource | None = None


class ProjectedSource(PartialStruct, frozen=True, kw_only=True):
    """Files from several sources in one folder."""

    sources: tuple[Projection, ...] = ()
    default_mode: int | None = None


class Volume(PartialStruct, frozen=True, kw_only=True):
    """A volume, of the kinds that an agent can make by itself."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    config_map: ConfigMapSource | None = None
    secret: SecretSource | None = None
    downward_api: DownwardSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedSource | None = None


# --- the pod ---


class PodSecurityContext(PartialStruct, frozen=True, kw_only=True):
    """As whom all containers run that do not say it themselves."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    seccomp_profile: ConfinementProfile | None = None
    app_armor_profile: ConfinementProfile | None = None


class ReadinessGate(PartialStruct, frozen=True, kw_only=True):
    """A condition that somebody else sets."""

    condition_type: str = ""


class DnsConfig(PartialStruct, frozen=True, kw_only=True):
    """How a pod finds names."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()


class PullSecret(PartialStruct, frozen=True, kw_only=True):
    """A secret with credentials for images."""

    name: str = ""


class Spec(PartialStruct, frozen=True, kw_only=True):
    """What a pod runs."""

    volumes: tuple[Volume, ...] = ()
    image_pull_secrets: tuple[PullSecret, ...] = ()
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    service_account_name: str = ""
    node_name: str = ""
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    share_process_namespace: bool = False
    security_context: PodSecurityContext | None = None
    hostname: str = ""
    subdomain: str = ""
    readiness_gates: tuple[ReadinessGate, ...] = ()
    runtime_class_name: str = ""
    dns_policy: str = ""
    dns_config: DnsConfig | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None


class Condition(PartialStruct, frozen=True, kw_only=True):
    """How a pod is."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: int = 0


class Status(PartialStruct, frozen=True, kw_only=True):
    """What the API says about a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    start_time: str | None = None
    qos_class: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(PartialStruct, frozen=True, kw_only=True):
    """A pod as its node sees it."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def containers(self) -> tuple[Container, ...]:
        """All of them, in the order in which they are told of."""
        return (*self.spec.init_containers, *self.spec.containers, *self.spec.ephemeral_containers)

    def container(self, name: str) -> Container | None:
        """The container of a name."""
        return next((each for each in self.containers() if each.name == name), None)


def decode_pod(value: Mapping[str, Any]) -> Pod:
    """A pod from the JSON value that the API server sends; ValueError if it is none."""
    try:
        return msgspec.convert(value, Pod, dec_hook=_hook)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(value), Pod, dec_hook=_hook)


def _hook(type_: type, value: Any) -> Any:
    if type_ is Quantity:
        return Quantity.parse(str(value))
    raise NotImplementedError(f"{type_} in a pod")


def _without_nulls(value: Any) -> Any:
    """null means absent."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
