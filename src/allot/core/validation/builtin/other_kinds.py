"""Kinds with defaults but few rules: CSI, admission registration, runtime classes, migrations.

Only their schema is checked; upstream checks more.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.model.classic import POTENTIAL_NODES_MAX
from allot.core.validation import formats
from allot.core.validation.builtin.checks import IMMUTABLE_TEXT, immutable, json_conditions, named
from allot.core.validation.builtin.credential_sources import EXPIRATION_SECONDS_DEFAULT, check_certificate_request
from allot.core.validation.builtin.pod_defaults import canonical_quantities
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, fill, items, members, present, text
from allot.core.validation.fields import Findings, duplicate, invalid, required, too_many


def _fixed(*paths: str) -> Callable[[Object, Object, str], Findings]:
    """Immutable fields, as dotted paths."""

    def check(new: Object, old: Object, subresource: str) -> Findings:
        found: Findings = []
        for path in paths if not subresource else ():
            *parents, name = path.split(".")
            found += immutable(members(new, *parents).get(name), members(old, *parents).get(name), path)
        return found

    return check


# --- storage ---


def _csi_driver_defaults(driver: Object) -> None:
    fill(
        present(driver, "spec"),
        attachRequired=True,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        podInfoOnMount=False,
        preventPodSchedulingIfMissing=False,
        requiresRepublish=False,
        seLinuxMount=False,
        storageCapacity=False,
    )
    spec = members(driver, "spec")
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


CSI_DRIVER = Rules(defaults=_csi_driver_defaults)
VOLUME_ATTACHMENT = Rules(initial_status=lambda _: {"attached": False}, check_update=_fixed("spec"))
VOLUME_ATTRIBUTES_CLASS = Rules(check_update=_fixed("driverName", "parameters"))
CSI_NODE = Rules(defaults=lambda o: fill(present(o, "spec"), drivers=None))

# --- certificates, node ---


def _runtime_class_defaults(class_: Object) -> None:
    canonical_quantities(members(class_, "overhead").get("podFixed"))


def _check_runtime_class(class_: Object) -> Findings:
    return named(text(class_, "handler"), "handler", formats.dns_label)


# --- migrations of stored versions ---


def _check_migration(migration: Object) -> Findings:
    resource, group = text(migration, "spec", "resource", "resource"), text(migration, "spec", "resource", "group")
    found: Findings = []
    if not resource:
        found.append(required("spec.resource.resource", "resource is required to be set"))
    elif formats.dns_label_1035(resource):
        found.append(invalid("spec.resource.resource", resource, ",".join(formats.dns_label_1035(resource))))
    if group and formats.dns_subdomain(group):
        found.append(invalid("spec.resource.group", group, ",".join(formats.dns_subdomain(group))))
    return found


def _check_migration_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource != "status":
        return immutable(new.get("spec"), old.get("spec"), "spec")
    status, before = members(new, "status"), members(old, "status")
    found: Findings = []
    version, known = text(status, "resourceVersion"), text(before, "resourceVersion")
    if version and not _is_version(version):
        found.append(invalid("status.resourceVersion", version, f"resource version is not well formed: {version}"))
    found += json_conditions(status.get("conditions"), "status.conditions")
    if known and version != known:
        found.append(invalid("status.resourceVersion", version, IMMUTABLE_TEXT))
    shown = status.get("conditions")
    if _is_true(status, "Succeeded") and _is_true(status, "Failed"):
        detail = "Both success and failed conditions cannot be true at the same time"
        found.append(invalid("status.conditions", shown, detail))
    for type_, name in (("Succeeded", "Success"), ("Failed", "Failed")):
        if _is_true(before, type_) and not _is_true(status, type_):
            detail = f"{name} condition cannot be set to false once it is true"
            found.append(invalid("status.conditions", shown, detail))
    return found


def _is_version(version: str) -> bool:
    return version.isascii() and version.isdigit() and version[0] != "0"


def _is_true(status: Object, type_: str) -> bool:
    found = next((each for each in items(status, "conditions") if text(each, "type") == type_), {})
    return text(found, "status") == "True"


# --- where pods with classic claims could run ---


def _check_context(context: Object) -> Findings:
    return _check_nodes(members(context, "spec").get("potentialNodes"), "spec.potentialNodes")


def _check_context_update(new: Object, _old: Object, subresource: str) -> Findings:
    found: Findings = []
    seen: set[str] = set()
    for position, claim in enumerate(items(members(new, "status"), "resourceClaims") if subresource else ()):
        where, name = f"status.resourceClaims[{position}]", text(claim, "name")
        found += named(name, f"{where}.name", formats.dns_label)
        if name in seen:
            found.append(duplicate(f"{where}.name", name))
        seen.add(name)
        found += _check_nodes(claim.get("unsuitableNodes"), f"{where}.unsuitableNodes")
    return found


def _check_nodes(nodes: object, path: str) -> Findings:
    listed = nodes if isinstance(nodes, list) else []
    found: Findings = []
    if len(listed) > POTENTIAL_NODES_MAX:
        found.append(too_many(path, len(listed), POTENTIAL_NODES_MAX))
    for position, node in enumerate(listed[:POTENTIAL_NODES_MAX]):
        found += named(str(node), f"{path}[{position}]", formats.dns_subdomain)
        if node in listed[:position]:
            found.append(duplicate(f"{path}[{position}]", node))
    return found


POD_SCHEDULING_CONTEXT = Rules(initial_status=lambda _: {}, check=_check_context, check_update=_check_context_update)
STORAGE_VERSION_MIGRATION = Rules(
    initial_status=lambda _: {}, check=_check_migration, check_update=_check_migration_update
)
POD_CERTIFICATE_REQUEST = Rules(
    defaults=lambda o: fill(present(o, "spec"), maxExpirationSeconds=EXPIRATION_SECONDS_DEFAULT),
    initial_status=lambda _: {},
    check=check_certificate_request,
    check_update=_fixed("spec"),
)
RUNTIME_CLASS = Rules(defaults=_runtime_class_defaults, check=_check_runtime_class, check_update=_fixed("handler"))
CUSTOM_RESOURCE_DEFINITION = Rules(generation_of=("spec",))
