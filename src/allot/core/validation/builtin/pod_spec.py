"""The spec of pods and pod templates, without what `core.validation.pod` checks: names, images, resources, claims.

Not covered: operating system specific rules, sysctls beyond their names, huge page mixes, eviction responders.
"""

from __future__ import annotations

import re

from allot.core.validation import formats
from allot.core.validation.builtin.checks import amounts, check_labels, not_negative, one_of, told
from allot.core.validation.builtin.containers import (
    EPHEMERAL_FORBIDDEN,
    check_container,
    check_host_ports,
    check_ids,
    check_probes,
    check_profile,
)
from allot.core.validation.builtin.placement import (
    check_affinity,
    check_dns,
    check_host_aliases,
    check_spreading,
    check_tolerations,
)
from allot.core.validation.builtin.values import Object, flag, given, items, members, number, text
from allot.core.validation.builtin.volumes import check_volumes
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    too_long,
)
from allot.core.validation.object_meta import NEGATIVE_TEXT

_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_INT32_MAX = 2**31 - 1
# sethostname(2) takes no more.
_HOSTNAME_LENGTH_MAX = 64
_SIDECAR_ONLY = "may not be set for init containers without restartPolicy=Always"
_INIT_FORBIDDEN = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

_sysctl = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?").fullmatch


def check_spec(spec: Object, path: str, *, pod_name: str = "", is_pod: bool = False) -> Findings:
    """A pod spec."""
    volumes = {text(volume, "name"): volume for volume in items(spec, "volumes")}
    grace = number(spec, "terminationGracePeriodSeconds")
    found = check_volumes(items(spec, "volumes"), pod_name, child(path, "volumes"))
    found += _check_containers(spec, volumes, grace, path)
    found += _check_host_network(spec, is_pod, path)
    found += one_of(spec, "restartPolicy", _RESTART_POLICIES, path, needed=True)
    selector = {name: value for name, value in members(spec, "nodeSelector").items() if isinstance(value, str)}
    found += check_labels(selector, child(path, "nodeSelector"))
    found += _check_security(members(spec, "securityContext"), child(path, "securityContext"))
    if flag(spec, "shareProcessNamespace") and flag(spec, "hostPID"):
        where = child(path, "shareProcessNamespace")
        found.append(invalid(where, True, "ShareProcessNamespace and HostPID cannot both be enabled"))
    if given(spec, "affinity"):
        found += check_affinity(members(spec, "affinity"), child(path, "affinity"))
    found += check_dns(spec, path)
    found += _check_gates(spec, path)
    constraints = items(spec, "topologySpreadConstraints")
    found += check_spreading(constraints, child(path, "topologySpreadConstraints"))
    found += _check_names(spec, path)
    found += _check_hostname_override(spec, path)
    found += check_tolerations(items(spec, "tolerations"), child(path, "tolerations"))
    found += check_host_aliases(items(spec, "hostAliases"), child(path, "hostAliases"))
    found += one_of(spec, "preemptionPolicy", ("Never", "PreemptLowerPriority"), path)
    for name, amount in amounts(spec.get("overhead")).items():
        if amount.sign() < 0:
            found.append(invalid(key(child(path, "overhead"), name), amount, NEGATIVE_TEXT))
    if given(spec, "os"):
        found += one_of(members(spec, "os"), "name", ("linux", "windows"), child(path, "os"), needed=True)
    return found


def _check_containers(spec: Object, volumes: dict[str, Object], grace: int | None, path: str) -> Findings:
    found: Findings = []
    containers = items(spec, "containers")
    for position, container in enumerate(containers):
        where = index(child(path, "containers"), position)
        found += check_container(container, volumes, grace, where) + check_probes(container, grace, where)
        found += one_of(container, "restartPolicy", _RESTART_POLICIES, where)
    found += check_host_ports(containers, child(path, "containers"))
    for position, container in enumerate(items(spec, "initContainers")):
        where = index(child(path, "initContainers"), position)
        sidecar = text(container, "restartPolicy") == "Always"
        common = container if sidecar else {**container, "lifecycle": None}
        found += check_container(common, volumes, grace, where)
        found += one_of(container, "restartPolicy", _RESTART_POLICIES, where)
        if sidecar:
            found += check_probes(container, grace, where)
        else:
            found += [
                forbidden(child(where, name), _SIDECAR_ONLY) for name in _INIT_FORBIDDEN if given(container, name)
            ]
    for position, container in enumerate(items(spec, "ephemeralContainers")):
        where = index(child(path, "ephemeralContainers"), position)
        found += check_container({**container, "ports": None, "lifecycle": None}, volumes, grace, where)
        found += [
            forbidden(child(where, name), "cannot be set for an Ephemeral Container")
            for name in EPHEMERAL_FORBIDDEN
            if given(container, name)
        ]
    return found


def _check_host_network(spec: Object, is_pod: bool, path: str) -> Findings:
    found: Findings = []
    for position, container in enumerate(items(spec, "containers")) if flag(spec, "hostNetwork") else ():
        for number_, port in enumerate(items(container, "ports")):
            host, inside = number(port, "hostPort") or 0, number(port, "containerPort") or 0
            if (is_pod or host) and host != inside:
                where = index(child(index(child(path, "containers"), position), "ports"), number_)
                detail = "must match `containerPort` when `hostNetwork` is true"
                found.append(invalid(child(where, "hostPort"), host, detail))
    return found


def _check_security(context: Object, path: str) -> Findings:
    found = check_ids(context, path, "fsGroup", "runAsUser", "runAsGroup")
    groups = context.get("supplementalGroups")
    for position, group in enumerate(groups if isinstance(groups, list) else ()):
        if isinstance(group, int) and not 0 <= group <= _INT32_MAX:
            where = index(child(path, "supplementalGroups"), position)
            found.append(invalid(where, group, f"must be between 0 and {_INT32_MAX}, inclusive"))
    names = set()
    for position, sysctl in enumerate(items(context, "sysctls")):
        where, name = child(index(child(path, "sysctls"), position), "name"), text(sysctl, "name")
        if not name or len(name) > 253 or not _sysctl(name):
            detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            found.append(invalid(where, name, detail))
        elif name in names:
            found.append(duplicate(where, name))
        names.add(name)
    found += one_of(context, "fsGroupChangePolicy", ("Always", "OnRootMismatch"), path)
    found += check_profile(context, "seccompProfile", path) + check_profile(context, "appArmorProfile", path)
    found += one_of(context, "supplementalGroupsPolicy", ("Merge", "Strict"), path)
    return found + one_of(context, "seLinuxChangePolicy", ("MountOption", "Recursive"), path)


def _check_gates(spec: Object, path: str) -> Findings:
    found: Findings = []
    for position, gate in enumerate(items(spec, "readinessGates")):
        where, type_ = (
            child(index(child(path, "readinessGates"), position), "conditionType"),
            text(gate, "conditionType"),
        )
        found += told(where, type_, formats.label_key(type_))
    seen = set()
    for position, gate in enumerate(items(spec, "schedulingGates")):
        where, name = index(child(path, "schedulingGates"), position), text(gate, "name")
        found += told(where, name, formats.label_key(name))
        if name in seen:
            found.append(duplicate(where, name))
        seen.add(name)
    return found


def _check_names(spec: Object, path: str) -> Findings:
    found: Findings = []
    for name in ("serviceAccountName", "priorityClassName", "runtimeClassName"):
        value = text(spec, name)
        found += told(child(path, name), value, formats.dns_subdomain(value)) if value else []
    for name in ("hostname", "subdomain"):
        value = text(spec, name)
        found += told(child(path, name), value, formats.dns_label(value)) if value else []
    deadline = number(spec, "activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        detail = f"must be between 1 and {_INT32_MAX}, inclusive"
        found.append(invalid(child(path, "activeDeadlineSeconds"), deadline, detail))
    return found


def _check_hostname_override(spec: Object, path: str) -> Findings:
    """A pod that chooses its whole host name can neither use the node's nor have one made of its fields."""
    name = spec.get("hostnameOverride")
    if not isinstance(name, str):
        return []
    where = child(path, "hostnameOverride")
    found = [
        forbidden(where, f"may not be specified when {other} is true")
        for other in ("setHostnameAsFQDN", "hostNetwork")
        if flag(spec, other)
    ]
    if byte_length(name) > _HOSTNAME_LENGTH_MAX:
        found.append(too_long(where, _HOSTNAME_LENGTH_MAX))
    return found + told(where, name, formats.dns_subdomain(name))


def check_pod_only(spec: Object, path: str) -> Findings:
    """Rules for pods that, for the sake of old objects, do not apply to templates."""
    found: Findings = []
    if not text(spec, "serviceAccountName"):
        for position, volume in enumerate(items(spec, "volumes")):
            for number_, source in enumerate(items(volume, "projected", "sources")):
                if given(source, "serviceAccountToken"):
                    where = index(child(index(child(path, "volumes"), position), "projected", "sources"), number_)
                    detail = "must not be specified when serviceAccountName is not set"
                    found.append(forbidden(child(where, "serviceAccountToken"), detail))
    return found + not_negative(spec, path, "terminationGracePeriodSeconds")
