"""Containers: ports, environment, mounts, probes, lifecycle, security.

Names, images, resources and claims are checked by `core.validation.pod`. Not covered: Windows options, environment from
files, resize and restart rules beyond their values.
"""

from __future__ import annotations

from typing import Any

from allot.core.validation import formats
from allot.core.validation.builtin.checks import (
    PROTOCOLS,
    config_key,
    env_name,
    header_name,
    not_negative,
    one_of,
    port_name,
    port_number,
    port_number_or_name,
    told,
)
from allot.core.validation.builtin.values import Object, given, items, members, number, text, texts
from allot.core.validation.builtin.volumes import check_env_field, check_resource_reference
from allot.core.validation.fields import (
    Findings,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_found,
    not_supported,
    required,
)

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("FallbackToLogsOnError", "File")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ID_MAX = 2**31 - 1
# Fields that an ephemeral container may not set.
EPHEMERAL_FORBIDDEN = ("ports", "lifecycle", *_PROBES)


def check_container(container: Object, volumes: dict[str, Object], grace_seconds: int | None, path: str) -> Findings:
    """Rules common to all containers."""
    found = one_of(container, "terminationMessagePolicy", _MESSAGE_POLICIES, path, needed=True)
    found += _check_ports(items(container, "ports"), child(path, "ports"))
    found += _check_env(items(container, "env"), child(path, "env"))
    found += _check_env_from(items(container, "envFrom"), child(path, "envFrom"))
    found += _check_mounts(container, volumes, path)
    found += one_of(container, "imagePullPolicy", _PULL_POLICIES, path, needed=True)
    found += _check_resize(items(container, "resizePolicy"), child(path, "resizePolicy"))
    if given(container, "securityContext"):
        found += check_security(members(container, "securityContext"), child(path, "securityContext"))
    for name in ("postStart", "preStop"):
        if given(container, "lifecycle", name):
            handler, where = members(container, "lifecycle", name), child(path, "lifecycle", name)
            found += _check_handler(handler, grace_seconds, where)
    return found


def check_probes(container: Object, grace_seconds: int | None, path: str) -> Findings:
    """Probes of a container that runs alongside the others."""
    found: Findings = []
    for name in _PROBES:
        if given(container, name):
            found += _check_probe(members(container, name), name, grace_seconds, child(path, name))
    return found


def _check_ports(ports: list[Object], path: str) -> Findings:
    found: Findings = []
    names = set()
    for position, port in enumerate(ports):
        where, name = index(path, position), text(port, "name")
        if name:
            messages = port_name(name)
            found += told(child(where, "name"), name, messages)
            if not messages and name in names:
                found.append(duplicate(child(where, "name"), name))
            names.add(name)
        container_port, host_port = number(port, "containerPort") or 0, number(port, "hostPort") or 0
        if not container_port:
            found.append(required(child(where, "containerPort")))
        else:
            found += told(child(where, "containerPort"), container_port, port_number(container_port))
        found += told(child(where, "hostPort"), host_port, port_number(host_port)) if host_port else []
        found += one_of(port, "protocol", PROTOCOLS, where, needed=True)
    return found


def check_host_ports(containers: list[Object], path: str) -> Findings:
    """Host ports that two containers of a pod both request."""
    found: Findings = []
    used = set()
    for position, container in enumerate(containers):
        for number_, port in enumerate(items(container, "ports")):
            host_port = number(port, "hostPort") or 0
            identity = (text(port, "protocol"), text(port, "hostIP"), host_port)
            if host_port and identity in used:
                where = child(index(child(index(path, position), "ports"), number_), "hostPort")
                shown = f"{identity[0]}/{identity[1]}/{host_port}" if identity[1] else f"{identity[0]}//{host_port}"
                found.append(duplicate(where, shown))
            used.add(identity)
    return found


# --- environment ---


def _check_env(variables: list[Object], path: str) -> Findings:
    found: Findings = []
    for position, variable in enumerate(variables):
        where, name = index(path, position), text(variable, "name")
        found += told(child(where, "name"), name, env_name(name)) if name else [required(child(where, "name"))]
        if given(variable, "valueFrom"):
            found += _check_value_from(variable, child(where, "valueFrom"))
    return found


def _check_value_from(variable: Object, path: str) -> Findings:
    source = members(variable, "valueFrom")
    given_ = [name for name in _ENV_SOURCES if given(source, name)]
    found: Findings = []
    for name in given_:
        reference, where = members(source, name), child(path, name)
        if name == "fieldRef":
            found += check_env_field(reference, where)
        elif name == "resourceFieldRef":
            found += check_resource_reference(reference, where, in_volume=False)
        elif name in ("configMapKeyRef", "secretKeyRef"):
            found += _check_key_reference(reference, where)
    if not given_:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        found.append(invalid(path, "", detail))
    elif text(variable, "value"):
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given_) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _check_key_reference(reference: Object, path: str) -> Findings:
    name, key = text(reference, "name"), text(reference, "key")
    found = told(child(path, "name"), name, formats.dns_subdomain(name))
    return found + (told(child(path, "key"), key, config_key(key)) if key else [required(child(path, "key"))])


def _check_env_from(sources: list[Object], path: str) -> Findings:
    found: Findings = []
    for position, source in enumerate(sources):
        where, prefix = index(path, position), text(source, "prefix")
        found += told(child(where, "prefix"), prefix, env_name(prefix)) if prefix else []
        kinds = [name for name in ("configMapRef", "secretRef") if given(source, name)]
        for kind in kinds:
            name = text(source, kind, "name")
            place = child(where, kind, "name")
            found += told(place, name, formats.dns_subdomain(name)) if name else [required(place)]
        if not kinds:
            found.append(invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(kinds) > 1:
            found.append(invalid(where, "", "may not have more than one field specified at a time"))
    return found


# --- mounts ---


def _check_mounts(container: Object, volumes: dict[str, Object], path: str) -> Findings:
    found: Findings = []
    devices = items(container, "volumeDevices")
    device_names, device_paths = {text(d, "name") for d in devices}, {text(d, "devicePath") for d in devices}
    mounted: set[str] = set()
    mounts_path = child(path, "volumeMounts")
    for position, mount in enumerate(items(container, "volumeMounts")):
        where, name, place = index(mounts_path, position), text(mount, "name"), text(mount, "mountPath")
        if not name:
            found.append(required(child(where, "name")))
        if name not in volumes:
            found.append(not_found(child(where, "name"), name))
        if not place:
            found.append(required(child(where, "mountPath")))
        if place in mounted:
            found.append(invalid(child(where, "mountPath"), place, "must be unique"))
        mounted.add(place)
        if name in device_names:
            found.append(invalid(child(where, "name"), name, "must not already exist in volumeDevices"))
        if place in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            found.append(invalid(child(where, "mountPath"), place, detail))
        # Upstream omits the index from these paths.
        found += _check_sub_paths(mount, where, mounts_path)
        found += _check_propagation(mount, container, mounts_path)
    return found + _check_devices(container, volumes, mounted, path)


def _check_sub_paths(mount: Object, path: str, mounts_path: str) -> Findings:
    found: Findings = []
    for name in ("subPath", "subPathExpr"):
        value, where = text(mount, name), child(mounts_path, name)
        if name == "subPathExpr" and value and text(mount, "subPath"):
            detail = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(child(path, name), value, detail))
        if value.startswith("/"):
            found.append(invalid(where, value, "must be a relative path"))
        if ".." in value.split("/"):
            found.append(invalid(where, value, "must not contain '..'"))
    return found


def _check_propagation(mount: Object, container: Object, path: str) -> Findings:
    if not given(mount, "mountPropagation"):
        return []
    propagation, where = text(mount, "mountPropagation"), child(path, "mountPropagation")
    if propagation not in _PROPAGATIONS:
        return [not_supported(where, propagation, _PROPAGATIONS)]
    if propagation == "Bidirectional" and members(container, "securityContext").get("privileged") is not True:
        return [forbidden(where, "Bidirectional mount propagation is available only to privileged containers")]
    return []


def _check_devices(container: Object, volumes: dict[str, Object], mounted: set[str], path: str) -> Findings:
    found: Findings = []
    names, paths = set(), set()
    for position, device in enumerate(items(container, "volumeDevices")):
        where = index(child(path, "volumeDevices"), position)
        name, place = text(device, "name"), text(device, "devicePath")
        if not name:
            found.append(required(child(where, "name")))
        if name in names:
            found.append(invalid(child(where, "name"), name, "must be unique"))
        names.add(name)
        if name not in volumes:
            found.append(not_found(child(where, "name"), name))
        elif not given(volumes[name], "persistentVolumeClaim") and not given(volumes[name], "ephemeral"):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.append(invalid(child(where, "name"), name, detail))
        if not place:
            found.append(required(child(where, "devicePath")))
        elif place in paths:
            found.append(invalid(child(where, "devicePath"), place, "must be unique"))
        if place in mounted:
            detail = "must not already exist as a path in volumeMounts"
            found.append(invalid(child(where, "devicePath"), place, detail))
        paths.add(place)
    return found


# --- probes and handlers ---


def _check_probe(probe: Object, name: str, grace_seconds: int | None, path: str) -> Findings:
    found = _check_handler(probe, grace_seconds, path)
    numbers = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
    found += not_negative(probe, path, *numbers)
    seconds = number(probe, "terminationGracePeriodSeconds")
    if seconds is not None and seconds <= 0:
        where = child(path, "terminationGracePeriodSeconds")
        found.append(invalid(where, seconds, "must be greater than 0"))
    if name == "readinessProbe" and seconds is not None:
        where = child(path, "terminationGracePeriodSeconds")
        found.append(invalid(where, seconds, "must not be set for readinessProbes"))
    threshold = number(probe, "successThreshold")
    if name != "readinessProbe" and threshold is not None and threshold != 1:
        found.append(invalid(child(path, "successThreshold"), threshold, "must be 1"))
    return found


def _check_handler(handler: Object, grace_seconds: int | None, path: str) -> Findings:
    given_ = [name for name in _HANDLERS if given(handler, name)]
    if not given_:
        return [required(path, "must specify a handler type")]
    found = _check_action(given_[0], members(handler, given_[0]), grace_seconds, child(path, given_[0]))
    return found + [forbidden(child(path, name), "may not specify more than 1 handler type") for name in given_[1:]]


def _check_action(name: str, action: Object, grace_seconds: int | None, path: str) -> Findings:
    match name:
        case "exec":
            return [] if texts(action, "command") else [required(child(path, "command"))]
        case "httpGet":
            found = [] if text(action, "path") else [required(child(path, "path"))]
            found += port_number_or_name(action.get("port"), child(path, "port"))
            found += one_of(action, "scheme", ("HTTP", "HTTPS"), path, needed=True)
            for header in items(action, "httpHeaders"):
                found += told(child(path, "httpHeaders"), text(header, "name"), header_name(text(header, "name")))
            return found
        case "tcpSocket":
            return port_number_or_name(action.get("port"), child(path, "port"))
        case "grpc":
            return told(child(path, "port"), number(action, "port") or 0, port_number(number(action, "port") or 0))
        case _:
            seconds = number(action, "seconds") or 0
            if grace_seconds is not None and not 0 <= seconds <= grace_seconds:
                detail = (
                    f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds}). "
                    "Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep."
                )
                return [invalid(path, seconds, detail)]
            return []


def _check_resize(policies: list[Object], path: str) -> Findings:
    found: Findings = []
    seen: set[Any] = set()
    for position, policy in enumerate(policies):
        where, name = index(path, position), text(policy, "resourceName")
        if name not in ("cpu", "memory"):
            found.append(not_supported(where, name, ("cpu", "memory")) if name else required(where))
        elif name in seen:
            found.append(duplicate(where, name))
        seen.add(name)
        restart = text(policy, "restartPolicy")
        if restart not in ("NotRequired", "RestartContainer"):
            supported = ("NotRequired", "RestartContainer")
            found.append(not_supported(where, restart, supported) if restart else required(where))
    return found


# --- security ---


def check_ids(context: Object, path: str, *names: str) -> Findings:
    """User and group IDs."""
    found: Findings = []
    for name in names:
        value = number(context, name)
        if value is not None and not 0 <= value <= _ID_MAX:
            found.append(invalid(child(path, name), value, f"must be between 0 and {_ID_MAX}, inclusive"))
    return found


def check_security(context: Object, path: str) -> Findings:
    """The security context of a container."""
    found = check_ids(context, path, "runAsUser", "runAsGroup")
    found += one_of(context, "procMount", ("Default", "Unmasked"), path)
    found += check_profile(context, "seccompProfile", path)
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged") is True:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            found.append(invalid(path, context, detail))
        if "CAP_SYS_ADMIN" in texts(context, "capabilities", "add"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.append(invalid(path, context, detail))
    return found + check_profile(context, "appArmorProfile", path)


def check_profile(context: Object, name: str, path: str) -> Findings:
    """A seccomp or AppArmor profile."""
    if not given(context, name):
        return []
    profile, where = members(context, name), child(path, name)
    type_, local = text(profile, "type"), text(profile, "localhostProfile")
    if not type_:
        return [required(child(where, "type"))]
    if type_ not in ("Localhost", "RuntimeDefault", "Unconfined"):
        return [not_supported(child(where, "type"), type_, ("Localhost", "RuntimeDefault", "Unconfined"))]
    place = child(where, "localhostProfile")
    if type_ == "Localhost":
        if not local:
            return [required(place, f"must be set when {name.removesuffix('Profile')} type is Localhost")]
        return []
    if given(profile, "localhostProfile"):
        return [invalid(place, local, f"can only be set when {name.removesuffix('Profile')} type is Localhost")]
    return []
