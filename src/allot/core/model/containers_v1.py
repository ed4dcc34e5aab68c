"""What the node of a container needs to run it, beyond what `core_v1.Container` names: command, environment, mounts, probes, hooks,
security.

Scheduling needs none of it and there are very many pods, so the caches of scheduler and controllers hold
`core_v1.Container`; a node's agent reads `RunnableContainer`, which adds these parts
(docs/internals/decisions/004-one-pod-model.md). Where a field has a default other than nothing, it is the API server's.
"""

from __future__ import annotations

from allot.core.model.core_v1 import Container, HTTPProbeTarget, ProbeTarget, ProbeTimes
from allot.core.model.meta import Int32, Int64, PartialStruct
from allot.core.quantity import Quantity

# --- environment ---


class KeySelector(PartialStruct, frozen=True, kw_only=True):
    """A key of a config map or secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ObjectFieldSelector(PartialStruct, frozen=True, kw_only=True):
    """A field of the pod."""

    api_version: str = "v1"
    field_path: str = ""


class ResourceFieldSelector(PartialStruct, frozen=True, kw_only=True):
    """A container's resource request or limit."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class EnvVarSource(PartialStruct, frozen=True, kw_only=True):
    """Where the value of a variable comes from."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(PartialStruct, frozen=True, kw_only=True):
    """A variable."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvSourceReference(PartialStruct, frozen=True, kw_only=True):
    """A config map or secret whose keys become variables."""

    name: str = ""
    optional: bool = False


class EnvFromSource(PartialStruct, frozen=True, kw_only=True):
    """All variables of a source."""

    prefix: str = ""
    config_map_ref: EnvSourceReference | None = None
    secret_ref: EnvSourceReference | None = None


# --- probes and hooks ---


class ExecAction(PartialStruct, frozen=True, kw_only=True):
    """A command in the container."""

    command: tuple[str, ...] = ()


class HTTPHeader(PartialStruct, frozen=True, kw_only=True):
    """A header of a request."""

    name: str = ""
    value: str = ""


class HTTPGetAction(HTTPProbeTarget, frozen=True, kw_only=True):
    """A request to the container."""

    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(ProbeTarget, frozen=True, kw_only=True):
    """A connection to the container."""

    host: str = ""


class SleepAction(PartialStruct, frozen=True, kw_only=True):
    """A pause."""

    seconds: Int64 = 0


class GRPCAction(ProbeTarget, frozen=True, kw_only=True):
    """A call to the gRPC health service at a port."""

    port: Int32 = 0
    service: str = ""


class Probe(ProbeTimes, frozen=True, kw_only=True):
    """How to check the health of a container."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    timeout_seconds: Int32 = 1
    success_threshold: Int32 = 1
    termination_grace_period_seconds: Int64 | None = None


class LifecycleHandler(PartialStruct, frozen=True, kw_only=True):
    """What to do after a start or before a stop."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(PartialStruct, frozen=True, kw_only=True):
    """The hooks of a container."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str = ""


# --- mounts and security ---


class VolumeMount(PartialStruct, frozen=True, kw_only=True):
    """A volume in a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str = ""
    recursive_read_only: str = ""


class Capabilities(PartialStruct, frozen=True, kw_only=True):
    """Linux capabilities added to or dropped from a container."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class ConfinementProfile(PartialStruct, frozen=True, kw_only=True):
    """Which system calls (seccomp) or files (AppArmor) a container may use: RuntimeDefault, Unconfined or Localhost."""

    type: str = ""
    localhost_profile: str = ""


class SecurityContext(PartialStruct, frozen=True, kw_only=True):
    """The user and privileges a container runs with."""

    run_as_user: Int64 | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    privileged: bool = False
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    seccomp_profile: ConfinementProfile | None = None
    app_armor_profile: ConfinementProfile | None = None


# --- the container ---


class ContainerResizePolicy(PartialStruct, frozen=True, kw_only=True):
    """Whether a container must restart to change a resource."""

    resource_name: str = ""
    restart_policy: str = "NotRequired"


class RunnableContainer(Container, frozen=True, kw_only=True):
    """A container with everything that its node needs to run it."""

    working_dir: str = ""
    env_from: tuple[EnvFromSource, ...] = ()
    env: tuple[EnvVar, ...] = ()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = ""
    termination_message_policy: str = "File"
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
