"""Rules for APIServices, with upstream's messages."""

from __future__ import annotations

import base64
import binascii

from allot.core.validation import formats
from allot.core.validation.builtin.checks import port_number
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, fill, flag, items, members, number, text
from allot.core.validation.fields import Findings, invalid, not_supported, quote, required

PORT = 443
_GROUP_PRIORITY_MAX = 20_000
_VERSION_PRIORITY_MAX = 1_000
_STATUSES = ("True", "False", "Unknown")


def _defaults(service: Object) -> None:
    fill(service, spec={}, status={})
    reference = members(service, "spec").get("service")
    if isinstance(reference, dict):
        fill(reference, port=PORT)


def _required_name(service: Object) -> str:
    return f"{text(service, 'spec', 'version')}.{text(service, 'spec', 'group')}"


def _check_name(service: Object) -> Findings:
    """The name tells group and version, so that no two APIServices can be about the same."""
    name, needed = text(service, "metadata", "name"), _required_name(service)
    if not name or formats.path_segment(name) or name == needed:
        return []
    return [invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: {quote(needed)}')]


def _check(service: Object) -> Findings:
    spec = members(service, "spec")
    group, version = text(spec, "group"), text(spec, "version")
    found = _check_name(service)
    if not group and version != "v1":
        found.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    found += [invalid("spec.group", group, each) for each in (formats.dns_subdomain(group) if group else ())]
    found += [invalid("spec.version", version, each) for each in formats.dns_label_1035(version)]
    for name, maximum in (("groupPriorityMinimum", _GROUP_PRIORITY_MAX), ("versionPriority", _VERSION_PRIORITY_MAX)):
        value = number(spec, name) or 0
        if not 0 < value <= maximum:
            found.append(invalid(f"spec.{name}", value, f"must be positive and less than {maximum}"))
    return found + (_check_remote(spec) if isinstance(spec.get("service"), dict) else _check_local(spec))


def _check_local(spec: Object) -> Findings:
    found: Findings = []
    if size := _bundle_bytes(spec):
        found.append(invalid("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle"))
    if flag(spec, "insecureSkipTLSVerify"):
        text_ = "local APIServices may not have insecureSkipTLSVerify"
        found.append(invalid("spec.insecureSkipTLSVerify", True, text_))
    return found


def _check_remote(spec: Object) -> Findings:
    found = [required(f"spec.service.{name}") for name in ("namespace", "name") if not text(spec, "service", name)]
    port = number(spec, "service", "port") or 0
    if wrong := port_number(port):
        found.append(invalid("spec.service.port", port, f"port is not valid: {', '.join(wrong)}"))
    if flag(spec, "insecureSkipTLSVerify") and _bundle_bytes(spec):
        found.append(invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return found


def _bundle_bytes(spec: Object) -> int:
    try:
        return len(base64.b64decode(text(spec, "caBundle")))
    except (ValueError, binascii.Error):
        return 0


def _check_update(new: Object, _old: Object, subresource: str) -> Findings:
    if subresource != "status":
        return []
    return [
        not_supported(f"status.conditions[{position}].status", text(condition, "status"), _STATUSES)
        for position, condition in enumerate(items(new, "status", "conditions"))
        if text(condition, "status") not in _STATUSES
    ]


API_SERVICE = Rules(name_format=formats.path_segment, defaults=_defaults, check=_check, check_update=_check_update)
