"""Who may write which part of a claim's status, in addition to the permission to write the status.

Allocating and reserving takes `resourceclaims/binding` in the whole cluster; a driver's report about its devices takes
`resourceclaims/driver` for that driver, more easily from the node that the claim is allocated to. Refusals are field errors
(422), not a 403. Kubernetes 1.37, gate DRAResourceClaimGranularStatusAuthorization. Whether a namespace may use admin access
is part of validation (`core.validation.claim`, `core.validation.claim_status`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.core.access.attributes import Attributes, Decision, User, refusal
from allot.core.access.service_accounts import NODE_NAME, is_subdomain, split_user_name
from allot.core.validation.fields import FieldError, forbidden

Authorize = Callable[[Attributes], Decision]
Status = Mapping[str, Any]


def check_claim_status_write(
    authorize: Authorize, attributes: Attributes, status: Status | None, old: Status | None
) -> tuple[FieldError, ...]:
    """Field errors for what the sender of a request to resourceclaims/status may not change. attributes: the request's."""
    new, before = status or {}, old or {}
    found = _check_binding(authorize, attributes, new, before)
    # Without an allocation the devices go as well, which is the allocator's business.
    if new.get("allocation") is not None:
        found += _check_devices(authorize, attributes, new, before)
    return tuple(found)


def _check_binding(authorize: Authorize, attributes: Attributes, new: Status, old: Status) -> list[FieldError]:
    if _same(new.get("allocation"), old.get("allocation")) and _same(new.get("reservedFor"), old.get("reservedFor")):
        return []
    asked = Attributes(
        user=attributes.user,
        verb=attributes.verb,
        group=attributes.group,
        version=attributes.version,
        resource=attributes.resource,
        subresource="binding",
    )
    refused = _refused(authorize, asked)
    if refused is None:
        return []
    needed = f'resource="resourceclaims/binding", verb="{attributes.verb}"'
    detail = f"changing status.allocation or status.reservedFor requires {needed} permission: {refused}"
    return [forbidden("status.allocation", detail).error]


def _check_devices(authorize: Authorize, attributes: Attributes, new: Status, old: Status) -> list[FieldError]:
    if not new.get("devices") and not old.get("devices"):
        return []
    verbs = [f"arbitrary-node:{attributes.verb}"]
    if _runs_on(attributes.user, allocated_node(new.get("allocation"))):
        verbs.insert(0, f"associated-node:{attributes.verb}")
    found: list[FieldError] = []
    for driver in changed_drivers(new, old):
        asked = [msgspec.structs.replace(attributes, verb=verb, subresource="driver", name=driver) for verb in verbs]
        refusals = [_refused(authorize, each) for each in asked]
        if None in refusals:
            continue
        needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]"'
        detail = f"changing status.devices requires {needed} permission: {refusals[0]}"
        found.append(forbidden("status.devices", detail).error)
    return found


def _refused(authorize: Authorize, attributes: Attributes) -> str | None:
    decision = authorize(attributes)
    if decision.allowed:
        return None
    subject = f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    if attributes.name:
        subject += f' "{attributes.name}"'
    return f"{subject} is forbidden: {refusal(attributes, decision.reason)}"


def changed_drivers(new: Status, old: Status) -> list[str]:
    """The drivers of devices whose entry is new, changed or gone, in order."""
    before = {_device_key(device): device for device in old.get("devices") or ()}
    changed: set[str] = set()
    for device in new.get("devices") or ():
        key = _device_key(device)
        if key not in before or not _same(before.pop(key), device):
            changed.add(key[0])
    changed.update(key[0] for key in before)
    return sorted(changed)


def _device_key(device: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (
        device.get("driver") or "",
        device.get("pool") or "",
        device.get("device") or "",
        device.get("shareID") or "",
    )


def allocated_node(allocation: Mapping[str, Any] | None) -> str:
    """The one node that an allocation is for; empty if its node selector says anything else than exactly that."""
    terms: list[Mapping[str, Any]] = ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields: list[Mapping[str, Any]] = terms[0].get("matchFields") or []
    if len(fields) != 1:
        return ""
    field = fields[0]
    values: list[str] = field.get("values") or []
    if field.get("key") != "metadata.name" or field.get("operator") != "In" or len(values) != 1:
        return ""
    return values[0]


def _runs_on(user: User, node: str) -> bool:
    """Whether the user is a service account whose token says that its pod runs on the node."""
    if not node or split_user_name(user.name) is None or not is_subdomain(node):
        return False
    return tuple(user.extra.get(NODE_NAME, ())) == (node,)


def _same(left: Any, right: Any) -> bool:
    """Equality as Kubernetes has it: what is empty and what is missing are the same.

    Without recursion: opaque parameters of drivers may be nested as deep as their size allows.
    """
    waiting = [(left, right)]
    while waiting:
        one, other = waiting.pop()
        if one is other or (_is_empty(one) and _is_empty(other)):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            waiting.extend((one.get(key), other.get(key)) for key in one.keys() | other.keys())
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            waiting.extend(zip(one, other, strict=True))
        elif type(one) is not type(other) or isinstance(one, dict | list) or one != other:
            return False
    return True


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}
