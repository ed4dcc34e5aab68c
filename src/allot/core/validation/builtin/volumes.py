"""Volumes of pods: one source each, with its required fields.

Not covered: the fields of sources that were removed from Kubernetes (flocker, quobyte, glusterfs, ...).
"""

from __future__ import annotations

from allot.core.validation import formats
from allot.core.validation.builtin.checks import quantity, told
from allot.core.validation.builtin.credential_sources import (
    check_pod_certificate_source,
    check_trust_bundle_source,
    paths_of,
)
from allot.core.validation.builtin.storage_kinds import check_claim_spec, check_source
from allot.core.validation.builtin.values import Object, given, items, members, number, text
from allot.core.validation.fields import Findings, child, duplicate, forbidden, index, invalid, not_supported, required

_MODE_MAX = 0o777
_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"
_TOKEN_SECONDS_MIN = 600
_TOKEN_SECONDS_MAX = 1 << 32
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCE_FIELDS = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")


def check_volumes(volumes: list[Object], pod_name: str, path: str) -> Findings:
    """The volumes of a pod; `pod_name` is empty in a template."""
    found: Findings = []
    names: set[str] = set()
    created = {f"{pod_name}-{text(item, 'name')}" for item in volumes if pod_name and given(item, "ephemeral")}
    for position, volume in enumerate(volumes):
        where, name = index(path, position), text(volume, "name")
        problems = _check_source(volume, where)
        if not name:
            problems.append(required(child(where, "name")))
        else:
            problems += told(child(where, "name"), name, formats.dns_label(name))
        if name in names:
            problems.append(duplicate(child(where, "name"), name))
        if not problems:
            names.add(name)
        found += problems
        claim = text(volume, "persistentVolumeClaim", "claimName")
        if claim and claim in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(invalid(child(where, "persistentVolumeClaim", "claimName"), claim, detail))
    return found


def _check_source(volume: Object, path: str) -> Findings:
    sources = [name for name, value in volume.items() if name != "name" and value is not None]
    if not sources:
        return [required(path, "must specify a volume type")]
    found = [forbidden(child(path, name), "may not specify more than 1 volume type") for name in sources[1:]]
    name = sources[0]
    source, where = members(volume, name), child(path, name)
    match name:
        case "secret":
            found += _check_files(source, "secretName", where)
        case "configMap":
            found += _check_files(source, "name", where)
        case "emptyDir":
            limit = quantity(source.get("sizeLimit"))
            if limit is not None and limit.sign() < 0:
                detail = "SizeLimit field must be a valid resource quantity"
                found.append(forbidden(child(where, "sizeLimit"), detail))
        case "persistentVolumeClaim" if not text(source, "claimName"):
            found.append(required(child(where, "claimName")))
        case "downwardAPI":
            found += _check_mode(source, "defaultMode", where)
            for item in items(source, "items"):
                found += _check_downward_file(item, where)
        case "projected":
            found += _check_projected(source, where)
        case "ephemeral":
            found += _check_ephemeral(source, where)
        case _:
            found += check_source(name, source, where)
    return found


def _check_files(source: Object, name_field: str, path: str) -> Findings:
    found = [] if text(source, name_field) else [required(child(path, name_field))]
    found += _check_mode(source, "defaultMode", path)
    for position, item in enumerate(items(source, "items")):
        found += _check_key_to_path(item, index(child(path, "items"), position))
    return found


def _check_mode(value: Object, name: str, path: str) -> Findings:
    mode = number(value, name)
    wrong = mode is not None and not 0 <= mode <= _MODE_MAX
    return [invalid(child(path, name), mode, _MODE_TEXT)] if wrong else []


def _check_key_to_path(item: Object, path: str) -> Findings:
    found = [required(child(path, name)) for name in ("key", "path") if not text(item, name)]
    found += check_local_path(text(item, "path"), child(path, "path"))
    return found + _check_mode(item, "mode", path)


def check_local_path(value: str, path: str) -> Findings:
    """A path below a volume that does not hide files the kubelet needs there."""
    found: Findings = []
    if value.startswith("/"):
        found.append(invalid(path, value, "must be a relative path"))
    if ".." in value.split("/"):
        found.append(invalid(path, value, "must not contain '..'"))
    if value.startswith("..") and not value.startswith("../"):
        found.append(invalid(path, value, "must not start with '..'"))
    return found


def _check_downward_file(item: Object, path: str) -> Findings:
    found = [] if text(item, "path") else [required(child(path, "path"))]
    found += check_local_path(text(item, "path"), child(path, "path"))
    if given(item, "fieldRef"):
        found += check_field_reference(members(item, "fieldRef"), _VOLUME_FIELDS, child(path, "fieldRef"))
        if given(item, "resourceFieldRef"):
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            found.append(invalid(path, "resource", detail))
    elif given(item, "resourceFieldRef"):
        where = child(path, "resourceFieldRef")
        found += check_resource_reference(members(item, "resourceFieldRef"), where, in_volume=True)
    else:
        found.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return found + _check_mode(item, "mode", path)


def check_field_reference(reference: Object, supported: tuple[str, ...], path: str) -> Findings:
    """A reference to a field of the pod."""
    for name in ("apiVersion", "fieldPath"):
        if not text(reference, name):
            return [required(child(path, name))]
    field = text(reference, "fieldPath")
    base, bracket, subscript = field.partition("['")
    if bracket and subscript.endswith("']"):
        key = subscript[:-2]
        if base == "metadata.annotations":
            return told(path, key.lower(), formats.label_key(key.lower()))
        if base == "metadata.labels":
            return told(path, key, formats.label_key(key))
        return [invalid(path, base, "does not support subscript")]
    if field not in _VOLUME_FIELDS and field not in _ENV_FIELDS:
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid(child(path, "fieldPath"), field, detail)]
    return [] if field in supported else [not_supported(child(path, "fieldPath"), field, supported)]


def check_env_field(reference: Object, path: str) -> Findings:
    """A reference to a field of the pod from an environment variable."""
    return check_field_reference(reference, _ENV_FIELDS, path)


def check_resource_reference(reference: Object, path: str, *, in_volume: bool) -> Findings:
    """A reference to a request or limit of a container."""
    resource = text(reference, "resource")
    if in_volume and not text(reference, "containerName"):
        return [required(child(path, "containerName"))]
    if not resource:
        return [required(child(path, "resource"))]
    if resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGES):
        return [not_supported(child(path, "resource"), resource, _RESOURCE_FIELDS)]
    return []


def _check_projected(source: Object, path: str) -> Findings:
    found = _check_mode(source, "defaultMode", path)
    paths: set[str] = set()
    for position, part in enumerate(items(source, "sources")):
        where = index(child(path, "sources"), position)
        kinds = [name for name, value in part.items() if value is not None]
        for kind in kinds:
            inner, place = members(part, kind), child(where, kind)
            if kind in ("secret", "configMap"):
                found += _check_files(inner, "name", place)
            elif kind == "downwardAPI":
                for item in items(inner, "items"):
                    found += _check_downward_file(item, place)
            elif kind == "serviceAccountToken":
                found += _check_token(inner, place, path)
            elif kind == "clusterTrustBundle":
                found += check_trust_bundle_source(inner, place)
            elif kind == "podCertificate":
                found += check_pod_certificate_source(inner, place)
            for name, used in paths_of(kind, inner):
                found += check_local_path(used, child(place, name))
                if used in paths:
                    found.append(invalid(path, used, "conflicting duplicate paths"))
                paths.add(used)
            for used in [text(item, "path") for item in items(inner, "items")]:
                if used and used in paths:
                    shown = text(inner, "name") if kind != "downwardAPI" else used
                    found.append(invalid(path, shown, "conflicting duplicate paths"))
                paths.add(used)
        if len(kinds) > 1:
            found.append(forbidden(where, "may not specify more than 1 volume type per source"))
    return found


def _check_token(token: Object, path: str, projected: str) -> Findings:
    found: Findings = []
    seconds, where = number(token, "expirationSeconds"), child(path, "expirationSeconds")
    if seconds is None:
        found.append(required(where))
    elif seconds < _TOKEN_SECONDS_MIN:
        found.append(invalid(where, seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > _TOKEN_SECONDS_MAX:
        found.append(invalid(where, seconds, "may not specify a duration larger than 2^32 seconds"))
    if not text(token, "path"):
        return [*found, required(child(projected, "path"))]
    return found + check_local_path(text(token, "path"), child(projected, "path"))


def _check_ephemeral(source: Object, path: str) -> Findings:
    template, where = members(source, "volumeClaimTemplate"), child(path, "volumeClaimTemplate")
    if not given(source, "volumeClaimTemplate"):
        return [required(where)]
    return check_claim_spec(members(template, "spec"), child(where, "spec"))
