"""Persistent volumes, their claims, storage classes.

Not covered: the members of the many volume sources besides hostPath, local, nfs and csi, annotations from before storage
classes were fields, the diff that upstream appends to the message about immutable specs.
"""

from __future__ import annotations

from allot.core.quantity import Quantity
from allot.core.validation import formats
from allot.core.validation.builtin.checks import (
    immutable,
    label_selector,
    named,
    one_of,
    quantity,
    told,
)
from allot.core.validation.builtin.pod_defaults import canonical_quantities
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    copied,
    fill,
    fill_text,
    given,
    items,
    members,
    present,
    same,
    text,
    texts,
)
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    forbidden,
    go_json,
    invalid,
    key,
    not_supported,
    required,
    too_long,
)

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES = ("Block", "Filesystem")
_NOT_SOURCES = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)
_PARAMETERS_SIZE_MAX = 256 * 1024
_PARAMETERS_MAX = 512


def check_access_modes(spec: Object, path: str) -> Findings:
    """Known modes, and ReadWriteOncePod on its own."""
    modes, where = texts(spec, "accessModes"), child(path, "accessModes")
    found = [not_supported(where, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES and mode != "ReadWriteOncePod" for mode in modes):
        found.append(forbidden(where, "may not use ReadWriteOncePod with other access modes"))
    return found


def _class_name(spec: Object, name: str, path: str) -> Findings:
    value = text(spec, name)
    return told(child(path, name), value, formats.dns_subdomain(value)) if value else []


# --- volumes ---


def _volume_defaults(volume: Object) -> None:
    spec = present(volume, "spec")
    fill_text(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    canonical_quantities(spec.get("capacity"))
    if isinstance(spec.get("hostPath"), dict):
        fill(spec["hostPath"], type="")
    fill_text(present(volume, "status"), phase="Pending")


def _check_volume(volume: Object) -> Findings:
    spec = members(volume, "spec")
    found = [] if texts(spec, "accessModes") else [required("spec.accessModes")]
    found += check_access_modes(spec, "spec")
    found += _check_capacity(members(spec, "capacity"))
    found += one_of(spec, "persistentVolumeReclaimPolicy", ("Delete", "Recycle", "Retain"), "spec")
    sources = [name for name, value in spec.items() if name not in _NOT_SOURCES and value is not None]
    found += [forbidden(child("spec", name), "may not specify more than 1 volume type") for name in sources[1:]]
    if not sources:
        found.append(required("spec", "must specify a volume type"))
    elif isinstance(spec[sources[0]], dict):
        found += check_source(sources[0], spec[sources[0]], child("spec", sources[0]))
    if given(spec, "local") and not items(spec, "nodeAffinity", "required", "nodeSelectorTerms"):
        found.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    whole_disk = given(spec, "hostPath") and not set(text(spec, "hostPath", "path").split("/")) - {"", "."}
    if whole_disk and text(spec, "persistentVolumeReclaimPolicy") == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        found.append(forbidden("spec.persistentVolumeReclaimPolicy", detail))
    found += _class_name(spec, "storageClassName", "spec") + one_of(spec, "volumeMode", _VOLUME_MODES, "spec")
    if given(spec, "volumeAttributesClassName"):
        if not text(spec, "volumeAttributesClassName"):
            found.append(required("spec.volumeAttributesClassName", "an empty string is disallowed"))
        found += _class_name(spec, "volumeAttributesClassName", "spec")
        if not given(spec, "csi"):
            found.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return found


def _check_capacity(capacity: Object) -> Findings:
    found = [] if capacity else [required("spec.capacity")]
    if set(capacity) != {"storage"}:
        finding = not_supported("spec.capacity", "", ("storage",))
        message = finding.error.message.replace('""', go_json(capacity) if capacity else "null", 1)
        found.append(type(finding)(type(finding.error)("spec.capacity", finding.error.type, message)))
    for name, raw in capacity.items():
        amount = quantity(raw)
        if amount is not None and amount.sign() <= 0:
            found.append(invalid(key("spec.capacity", name), amount, "must be greater than zero"))
    return found


def check_source(name: str, source: Object, path: str) -> Findings:
    """Fields of a volume source that pods and persistent volumes share."""
    found: Findings = []
    match name:
        case "hostPath":
            found += check_host_path(source, path)
        case "local":
            found += _needed(source, path, "path")
            if ".." in text(source, "path").split("/"):
                found.append(invalid(child(path, "path"), text(source, "path"), "must not contain '..'"))
        case "nfs":
            found += _needed(source, path, "server", "path")
            if text(source, "path") and not text(source, "path").startswith("/"):
                found.append(invalid(child(path, "path"), text(source, "path"), "must be an absolute path"))
        case "csi":
            found += named(text(source, "driver"), child(path, "driver"), _driver_name)
            if "volumeHandle" in source or not path.startswith("spec.volumes"):
                found += _needed(source, path, "volumeHandle")
    return found


_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def check_host_path(source: Object, path: str) -> Findings:
    """A path on the node."""
    found = _needed(source, path, "path")
    if found:
        return found
    if ".." in text(source, "path").split("/"):
        found.append(invalid(child(path, "path"), text(source, "path"), "must not contain '..'"))
    if text(source, "type") not in _HOST_PATH_TYPES:
        found.append(not_supported(child(path, "type"), text(source, "type"), _HOST_PATH_TYPES))
    return found


def _driver_name(value: str) -> list[str]:
    messages = ["must be no more than 63 characters"] if byte_length(value) > 63 else []
    return messages + formats.dns_subdomain(value.lower())


def _needed(source: Object, path: str, *names: str) -> Findings:
    return [required(child(path, name)) for name in names if not text(source, name)]


def _check_volume_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return []
    spec, before = members(new, "spec"), members(old, "spec")
    sources = [
        {name: value for name, value in one.items() if name not in _NOT_SOURCES and value is not None}
        for one in (spec, before)
    ]
    found: Findings = []
    if not same(sources[0], sources[1]):
        detail = "spec.persistentvolumesource is immutable after creation"
        found.append(forbidden("spec.persistentvolumesource", detail))
    found += immutable(spec.get("volumeMode"), before.get("volumeMode"), "volumeMode")
    if given(before, "nodeAffinity"):
        found += immutable(spec.get("nodeAffinity"), before.get("nodeAffinity"), "nodeAffinity")
    return found


PERSISTENT_VOLUME = Rules(
    defaults=_volume_defaults,
    initial_status=lambda _: {"phase": "Pending"},
    check=_check_volume,
    check_update=_check_volume_update,
)

# --- claims ---


def _claim_defaults(claim: Object) -> None:
    spec = present(claim, "spec")
    fill_text(spec, volumeMode="Filesystem")
    fill(spec, resources={})
    for name in ("requests", "limits"):
        canonical_quantities(members(spec, "resources").get(name))
    fill_text(present(claim, "status"), phase="Pending")
    if given(spec, "dataSource") and not given(spec, "dataSourceRef"):
        spec["dataSourceRef"] = copied(spec["dataSource"])


def check_claim_spec(spec: Object, path: str) -> Findings:
    """What a claim requests."""
    found: Findings = []
    if not texts(spec, "accessModes"):
        found.append(required(child(path, "accessModes"), "at least 1 access mode is required"))
    if given(spec, "selector"):
        found += label_selector(spec["selector"], child(path, "selector"))
    found += check_access_modes(spec, path)
    where = key(child(path, "resources"), "storage")
    amount = quantity(members(spec, "resources", "requests").get("storage"))
    if amount is None:
        found.append(required(where))
    elif amount.sign() <= 0:
        found.append(invalid(where, amount, "must be greater than zero"))
    found += _class_name(spec, "storageClassName", path) + one_of(spec, "volumeMode", _VOLUME_MODES, path)
    for name in ("dataSource", "dataSourceRef"):
        if given(spec, name):
            found += _check_data_source(members(spec, name), child(path, name))
    return found + _class_name(spec, "volumeAttributesClassName", path)


def _check_data_source(source: Object, path: str) -> Findings:
    found = _needed(source, path, "name", "kind")
    group, kind = text(source, "apiGroup"), text(source, "kind")
    if not group and kind != "PersistentVolumeClaim":
        found.append(invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
    return found + (told(child(path, "apiGroup"), group, formats.dns_subdomain(group)) if group else [])


def _check_claim_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return []
    spec, before = copied(members(new, "spec")), copied(members(old, "spec"))
    size = quantity(members(spec, "resources", "requests").get("storage"))
    old_size = quantity(members(before, "resources", "requests").get("storage"))
    if not text(before, "volumeName"):
        before["volumeName"] = spec.get("volumeName")
    if not given(before, "storageClassName") and given(spec, "storageClassName"):
        before["storageClassName"] = spec["storageClassName"]
    if text(new, "status", "phase") == "Bound":
        if "storage" in members(spec, "resources", "requests"):
            spec["resources"]["requests"]["storage"] = members(before, "resources", "requests").get("storage")
        before["volumeAttributesClassName"] = spec.get("volumeAttributesClassName")
    found: Findings = []
    if not same(spec, before):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        found.append(forbidden("spec", detail))
    if size is not None and old_size is not None and size < old_size:
        capacity = quantity(members(old, "status", "capacity").get("storage")) or Quantity.from_int(0)
        if size <= capacity:
            where = "spec.resources.requests.storage"
            found.append(forbidden(where, "field can not be less than status.capacity"))
    volume_mode = members(new, "spec").get("volumeMode")
    return found + immutable(volume_mode, members(old, "spec").get("volumeMode"), "volumeMode")


PERSISTENT_VOLUME_CLAIM = Rules(
    defaults=_claim_defaults,
    initial_status=lambda _: {"phase": "Pending"},
    check=lambda o: check_claim_spec(members(o, "spec"), "spec"),
    check_update=_check_claim_update,
)

# --- classes ---


def _check_storage_class(class_: Object) -> Findings:
    provisioner = text(class_, "provisioner")
    found = named(provisioner.lower(), "provisioner", formats.label_key)
    parameters = {name: value for name, value in members(class_, "parameters").items() if isinstance(value, str)}
    if len(parameters) > _PARAMETERS_MAX:
        found.append(too_long("parameters", _PARAMETERS_MAX))
    else:
        found += [invalid("parameters", name, "field can not be empty.") for name in parameters if not name]
        if sum(byte_length(name) + byte_length(value) for name, value in parameters.items()) > _PARAMETERS_SIZE_MAX:
            found.append(too_long("parameters", _PARAMETERS_SIZE_MAX))
    found += one_of(class_, "reclaimPolicy", ("Delete", "Retain"), "")
    return found + one_of(class_, "volumeBindingMode", ("Immediate", "WaitForFirstConsumer"), "", needed=True)


def _check_storage_class_update(new: Object, old: Object, _subresource: str) -> Findings:
    names = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")
    return [found for name in names for found in immutable(new.get(name), old.get(name), name)]


STORAGE_CLASS = Rules(
    defaults=lambda o: fill(o, reclaimPolicy="Delete", volumeBindingMode="Immediate"),
    check=_check_storage_class,
    check_update=_check_storage_class_update,
)
