"""Pods: what happens to them on the way in, and what may change.

The rules in `core.validation.pod` (names, images, resources, claims, immutable spec fields) are not repeated
here; a server runs both.
"""

from __future__ import annotations

from allot.core.validation.addresses import are_dual_stack, ip_warnings, legacy_ip
from allot.core.validation.builtin.checks import told
from allot.core.validation.builtin.placement import check_tolerations_update
from allot.core.validation.builtin.pod_defaults import pod_defaults, quality_of_service
from allot.core.validation.builtin.pod_spec import check_pod_only, check_spec
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, copied, items, members, number, same, text, texts
from allot.core.validation.fields import Findings, forbidden, index, invalid, required

_RESIZABLE = ("cpu", "memory")
_RESIZED = ("containers", "initContainers")


def _prepare_update(new: Object, old: Object, subresource: str) -> None:
    status = members(old, "status")
    if subresource == "status":
        # A status update does not change owners and deletion.
        metadata, before = new["metadata"], members(old, "metadata")
        for name in ("ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if name in before:
                metadata[name] = copied(before[name])
            else:
                metadata.pop(name, None)
        if isinstance(new.get("status"), dict) and status.get("qosClass"):
            new["status"].setdefault("qosClass", status["qosClass"])
        _linked_addresses(members(new, "status"))
        return
    if subresource == "ephemeralcontainers":
        new["spec"] = {
            **copied(members(old, "spec")),
            "ephemeralContainers": members(new, "spec").get("ephemeralContainers"),
        }
    elif subresource == "resize":
        new["spec"] = _resized(members(new, "spec"), copied(members(old, "spec")))


def _linked_addresses(status: Object) -> None:
    """podIP and the first of podIPs are the same; podIP wins. Clients write either."""
    address, addresses = text(status, "podIP"), items(status, "podIPs")
    if address and (not addresses or text(addresses[0], "ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses and not address:
        status["podIP"] = text(addresses[0], "ip")


def _resized(spec: Object, before: Object) -> Object:
    """The old spec with the resources of the new one, of the pod itself and of its containers. Added, removed, renamed or reordered containers stay, to be refused
    (dropNonResizeUpdates in pkg/registry/core/pod, 1.37)."""
    lists = [(name, items(spec, name), items(before, name)) for name in _RESIZED]
    if any(len(new) != len(old) for _, new, old in lists):
        return {**spec}
    for name, new, old in lists:
        if [text(each, "name") for each in new] != [text(each, "name") for each in old]:
            before[name] = copied(new)
            continue
        for changed, container in zip(new, old, strict=True):
            container["resources"] = copied(members(changed, "resources"))
            if "resizePolicy" in changed:
                container["resizePolicy"] = copied(changed["resizePolicy"])
    if spec.get("resources") is not None:
        before["resources"] = copied(spec["resources"])
    return before


def _check(pod: Object) -> Findings:
    spec = members(pod, "spec")
    return check_spec(spec, "spec", pod_name=text(pod, "metadata", "name"), is_pod=True) + check_pod_only(spec, "spec")


def _check_update(new: Object, old: Object, subresource: str) -> Findings:
    match subresource:
        case "":
            return _check_spec_update(members(new, "spec"), members(old, "spec"))
        case "ephemeralcontainers":
            return _check_ephemeral(new, old)
        case "resize":
            return _check_resize(new, old)
        case "status":
            return _check_addresses(new, old, "pod") + _check_addresses(new, old, "host")
        case _:
            return []


def _check_addresses(new: Object, old: Object, whose: str) -> Findings:
    """podIPs or hostIPs: at most one of each family, spelled unambiguously; stored ones may stay."""
    status, name = members(new, "status"), f"{whose}IPs"
    path, address = f"status.{name}", text(status, f"{whose}IP")
    addresses = [text(entry, "ip") for entry in items(status, name)]
    found: Findings = []
    # Upstream's types lack JSON names.
    shown = [{"IP": each} for each in addresses]
    differs = bool(addresses) and addresses[0] != address
    if differs and whose == "host":
        found.append(invalid(f"{path}[0].ip", addresses[0], "must be equal to `hostIP`"))
    known = {text(entry, "ip") for entry in items(old, "status", name)}
    for position, each in enumerate(addresses):
        if each not in known:
            found += told(index(path, position), each, legacy_ip(each))
    if len(addresses) > 2 or (len(addresses) == 2 and not are_dual_stack(addresses)):
        found.append(invalid(path, shown, "may specify no more than one IP for each IP family"))
    if whose == "pod" and bool(address) != bool(addresses):
        found.append(invalid(path, shown, "podIP and podIPs must either both be set or both be unset"))
    elif differs and whose == "pod":
        found.append(invalid(f"{path}[0].ip", addresses[0], "must be equal to `podIP`"))
    return found


_STATUS_ADDRESSES = ("podIPs", "hostIPs")
_SPEC_ADDRESSES = ("dnsConfig", "hostAliases")


def _warnings(pod: Object) -> tuple[str, ...]:
    status, spec = members(pod, "status"), members(pod, "spec")
    if not (status.keys() & _STATUS_ADDRESSES or spec.keys() & _SPEC_ADDRESSES):
        # The case for nearly all pods until they run, on every write.
        return ()
    found: list[str] = []
    for name in _STATUS_ADDRESSES:
        for position, entry in enumerate(items(status, name)):
            found += ip_warnings(f"{index(f'status.{name}', position)}.ip", text(entry, "ip"))
    for position, server in enumerate(texts(spec, "dnsConfig", "nameservers")):
        found += ip_warnings(index("spec.dnsConfig.nameservers", position), server)
    for position, alias in enumerate(items(spec, "hostAliases")):
        found += ip_warnings(f"{index('spec.hostAliases', position)}.ip", text(alias, "ip"))
    return tuple(found)


def _check_spec_update(spec: Object, before: Object) -> Findings:
    found: Findings = []
    deadline, old_deadline = number(spec, "activeDeadlineSeconds"), number(before, "activeDeadlineSeconds")
    if deadline is not None and old_deadline is not None and deadline > old_deadline:
        detail = "must be less than or equal to previous value"
        found.append(invalid("spec.activeDeadlineSeconds", deadline, detail))
    elif deadline is None and old_deadline is not None:
        detail = "must not update from a positive integer to nil value"
        found.append(invalid("spec.activeDeadlineSeconds", None, detail))
    old_tolerations, tolerations = items(before, "tolerations"), items(spec, "tolerations")
    found += check_tolerations_update(tolerations, old_tolerations, "spec.tolerations")
    gates = {text(gate, "name") for gate in items(before, "schedulingGates")}
    for position, gate in enumerate(items(spec, "schedulingGates")):
        if text(gate, "name") not in gates:
            detail = f"only deletion is allowed, but found new scheduling gate '{text(gate, 'name')}'"
            found.append(forbidden(f"spec.schedulingGates[{position}].name", detail))
    if text(spec, "nodeName") != text(before, "nodeName"):
        found.append(forbidden("spec", "pod updates may not change fields other than " + _UPDATABLE))
    return found


_MIRROR = "kubernetes.io/config.mirror"
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _check_ephemeral(new: Object, old: Object) -> Findings:
    found = _check(new)
    containers = {text(container, "name"): container for container in items(new, "spec", "ephemeralContainers")}
    for before in items(old, "spec", "ephemeralContainers"):
        name = text(before, "name")
        if name not in containers:
            what = "removed"
        elif not same(containers[name], before):
            what = "changed"
        else:
            continue
        detail = f'existing ephemeral containers "{name}" may not be {what}\n'
        found.append(forbidden("spec.ephemeralContainers", detail))
    return found


def _check_resize(new: Object, old: Object) -> Findings:
    found = _check(new)
    if _MIRROR in members(old, "metadata", "annotations"):
        return [forbidden("", "static pods cannot be resized")]
    if text(old, "spec", "os", "name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    if not items(new, "spec", "containers"):
        found.append(required("spec.containers"))
    if quality_of_service(new) != (text(old, "status", "qosClass") or quality_of_service(old)):
        given = text(new, "status", "qosClass")
        found.append(invalid("spec", given, "Pod QOS Class may not change as a result of resizing"))
    running = [each for each in items(old, "status", "containerStatuses") if "running" in members(each, "state")]
    if running and "resources" not in running[0]:
        found.append(forbidden("spec", "Pod running on node without support for resize"))
    found += _check_pod_level(new, old)
    misplaced = [found for name in _RESIZED for found in _check_order(new, old, name)]
    if misplaced:
        return found + misplaced
    for name in _RESIZED:
        pairs = zip(items(new, "spec", name), items(old, "spec", name), strict=True)
        for position, (container, earlier) in enumerate(pairs):
            for side in ("requests", "limits"):
                amounts, old_amounts = members(container, "resources", side), members(earlier, "resources", side)
                if old_amounts.keys() - amounts.keys():
                    where = f"{index(f'spec.{name}', position)}.resources.{side}"
                    found.append(forbidden(where, f"resource {side} cannot be removed"))
                changed = {n for n in amounts.keys() | old_amounts.keys() if amounts.get(n) != old_amounts.get(n)}
                if changed - set(_RESIZABLE):
                    found.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return found


def _check_pod_level(new: Object, old: Object) -> Findings:
    """The resources of the pod itself: nothing is removed, and only CPU and memory change (validatePodLevelResourcesResize, 1.37)."""
    found: Findings = []
    for side in ("requests", "limits"):
        amounts, old_amounts = members(new, "spec", "resources", side), members(old, "spec", "resources", side)
        if old_amounts.keys() - amounts.keys():
            found.append(forbidden(f"spec.resources.{side}", f"pod-level resource {side} cannot be removed"))
        changed = {n for n in amounts.keys() | old_amounts.keys() if amounts.get(n) != old_amounts.get(n)}
        if changed - set(_RESIZABLE):
            found.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return found


def _check_order(new: Object, old: Object, kind: str) -> Findings:
    """The containers of a resized pod are the same, in the same order."""
    names = [[text(each, "name") for each in items(pod, "spec", kind)] for pod in (new, old)]
    if len(names[0]) != len(names[1]):
        return [forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize")]
    detail = f"{kind} may not be renamed or reordered on resize"
    places = enumerate(zip(*names, strict=True))
    return [forbidden(f"spec.{kind}[{position}].name", detail) for position, (name, before) in places if name != before]


def _frozen_status(pod: Object) -> Object:
    return {"phase": "Pending", "qosClass": quality_of_service(pod)}


POD = Rules(
    defaults=pod_defaults,
    initial_status=_frozen_status,
    generation_of=("spec",),
    prepare_update=_prepare_update,
    check=_check,
    check_update=_check_update,
    warnings=_warnings,
)
