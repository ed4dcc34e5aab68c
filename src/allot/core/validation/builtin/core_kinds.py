"""Namespaces, nodes, config maps, secrets, service accounts, events.

Not covered: kubelet configuration sources of nodes, docker credentials beyond being JSON.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Any

import msgspec

from allot.core.validation import formats
from allot.core.validation.addresses import are_dual_stack, cidr_warnings, legacy_cidr
from allot.core.validation.builtin.checks import (
    amounts,
    config_key,
    duplicate_of,
    immutable,
    named,
    told,
)
from allot.core.validation.builtin.pod_defaults import canonical_quantities
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    fill,
    fill_text,
    flag,
    given,
    items,
    members,
    present,
    same,
    text,
    texts,
)
from allot.core.validation.fields import (
    Finding,
    Findings,
    byte_length,
    child,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
    too_long,
)
from allot.core.validation.object_meta import NEGATIVE_TEXT, check_qualified_name

DATA_SIZE_MAX = 1024 * 1024
_FROZEN_TEXT = "field is immutable when `immutable` is set"
_NAME_LABEL = "kubernetes.io/metadata.name"
_ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# --- namespaces ---


def _namespace_defaults(namespace: Object) -> None:
    metadata = present(namespace, "metadata")
    if text(metadata, "name"):
        labels = metadata.get("labels")
        metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), _NAME_LABEL: metadata["name"]}
    fill(namespace, spec={})
    fill_text(present(namespace, "status"), phase="Active")


def _new_namespace(namespace: Object) -> None:
    spec = present(namespace, "spec")
    finalizers = texts(spec, "finalizers")
    spec["finalizers"] = finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]


def _changed_namespace(new: Object, old: Object, subresource: str) -> None:
    if subresource != "finalize":
        spec = {**members(new, "spec"), "finalizers": members(old, "spec").get("finalizers")}
        new["spec"] = {name: value for name, value in spec.items() if value is not None}
    labels = members(new, "metadata", "labels")
    if text(new, "metadata", "name"):
        new["metadata"] = {**members(new, "metadata"), "labels": {**labels, _NAME_LABEL: text(new, "metadata", "name")}}


def _check_namespace(namespace: Object) -> Findings:
    return [found for name in texts(namespace, "spec", "finalizers") for found in _finalizer(name, "spec.finalizers")]


def _finalizer(name: str, path: str) -> Findings:
    return told(path, name, formats.label_key(name)) + check_qualified_name(name, path)


def _check_namespace_update(new: Object, _old: Object, subresource: str) -> Findings:
    if subresource == "finalize":
        names = enumerate(texts(new, "spec", "finalizers"))
        return [found for position, name in names for found in _finalizer(name, index("spec.finalizers", position))]
    if subresource != "status":
        return []
    wanted = "Terminating" if text(new, "metadata", "deletionTimestamp") else "Active"
    if text(new, "status", "phase") == wanted:
        return []
    when = "not empty" if wanted == "Terminating" else "empty"
    detail = f"may only be '{wanted}' if `deletionTimestamp` is {when}"
    return [invalid("status.Phase", text(new, "status", "phase"), detail)]


NAMESPACE = Rules(
    name_format=formats.dns_label,
    defaults=_namespace_defaults,
    initial_status=lambda _: {"phase": "Active"},
    prepare_create=_new_namespace,
    prepare_update=_changed_namespace,
    check=_check_namespace,
    check_update=_check_namespace_update,
)

# --- nodes ---


def _node_defaults(node: Object) -> None:
    spec = members(node, "spec")
    networks, network = texts(spec, "podCIDRs"), text(spec, "podCIDR")
    if network and networks[:1] != [network]:
        # The older field wins if both are set.
        spec["podCIDRs"] = [network]
    elif networks:
        spec["podCIDR"] = networks[0]
    fill(node, spec={})
    status = present(node, "status")
    canonical_quantities(status.get("capacity"))
    canonical_quantities(status.get("allocatable"))
    if status.get("allocatable") is None and isinstance(status.get("capacity"), dict):
        status["allocatable"] = dict(status["capacity"])
    fill(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}}, nodeInfo={})
    info = status["nodeInfo"]
    if isinstance(info, dict):
        for name in _NODE_INFO:
            info.setdefault(name, "")


_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)


def check_taints(taints: list[Object], path: str) -> Findings:
    """Taints of a node."""
    found: Findings = []
    seen = set()
    for position, taint in enumerate(taints):
        where = index(path, position)
        name, effect = text(taint, "key"), text(taint, "effect")
        found += told(child(where, "key"), name, formats.label_key(name))
        messages = formats.label_value(text(taint, "value"))
        if messages:
            found.append(invalid(child(where, "value"), text(taint, "value"), ";".join(messages)))
        if not effect:
            found.append(required(child(where, "effect")))
        elif effect not in _TAINT_EFFECTS:
            found.append(not_supported(child(where, "effect"), effect, _TAINT_EFFECTS))
        if (name, effect) in seen:
            shown = {"Key": name, "Value": text(taint, "value"), "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            found.append(duplicate_of(where, shown, "taints must be unique by key and effect pair"))
        seen.add((name, effect))
    return found


def _check_node(node: Object) -> Findings:
    # Upstream reports taints under metadata, although they are in the spec.
    found = check_taints(items(node, "spec", "taints"), "metadata.taints")
    found += _check_node_resources(node)
    networks = texts(node, "spec", "podCIDRs")
    for position, network in enumerate(networks):
        found += told(index("spec.podCIDRs", position), network, legacy_cidr(network))
    if len(networks) > 2 or (len(networks) == 2 and not are_dual_stack(networks)):
        found.append(invalid("spec.podCIDRs", networks, "may specify no more than one CIDR for each IP family"))
    return found


def _check_node_resources(node: Object) -> Findings:
    found: Findings = []
    for name in ("capacity", "allocatable"):
        for resource, amount in amounts(members(node, "status").get(name)).items():
            if amount.sign() < 0:
                found.append(invalid(f"status.{name}[{resource}]", amount, NEGATIVE_TEXT))
    return found


def _check_node_update(new: Object, old: Object, _subresource: str) -> Findings:
    found: Findings = []
    seen = set()
    for position, address in enumerate(items(new, "status", "addresses")):
        identity = (text(address, "type"), text(address, "address"))
        if identity in seen:
            shown = {"Type": identity[0], "Address": identity[1]}
            found.append(duplicate_of(index("status.addresses", position), shown))
        seen.add(identity)
    before = texts(old, "spec", "podCIDRs")
    if before and before != texts(new, "spec", "podCIDRs"):
        detail = 'node updates may not change podCIDR except from "" to valid'
        found.append(forbidden("spec.podCIDRs", detail))
    provider = text(old, "spec", "providerID")
    if provider and text(new, "spec", "providerID") != provider:
        what = "modified" if text(new, "spec", "providerID") else "cleared"
        found.append(invalid("spec.providerID", None, f"field cannot be {what} once set"))
    return found


def _node_warnings(node: Object) -> tuple[str, ...]:
    networks = enumerate(texts(node, "spec", "podCIDRs"))
    return tuple(
        told_ for number_, value in networks for told_ in cidr_warnings(index("spec.podCIDRs", number_), value)
    )


NODE = Rules(defaults=_node_defaults, check=_check_node, check_update=_check_node_update, warnings=_node_warnings)

# --- config maps and secrets ---


def _check_config_map(config: Object) -> Findings:
    found: Findings = []
    data, binary = members(config, "data"), members(config, "binaryData")
    for name in data:
        found += told(key("data", name), name, config_key(name))
        if name in binary:
            found.append(invalid(key("data", name), name, "duplicate of key present in binaryData"))
    for name in binary:
        found += told(key("binaryData", name), name, config_key(name))
    size = sum(byte_length(value) for value in data.values() if isinstance(value, str))
    size += sum(_decoded_size(value) for value in binary.values())
    if size > DATA_SIZE_MAX:
        found.append(too_long("[]", DATA_SIZE_MAX))
    return found


def _decoded_size(value: Any) -> int:
    return len(value) * 3 // 4 - value[-2:].count("=") if isinstance(value, str) else 0


def _check_frozen(*names: str) -> Any:
    def check(new: Object, old: Object, _subresource: str) -> Findings:
        if not flag(old, "immutable"):
            return []
        found = [] if flag(new, "immutable") else [forbidden("immutable", _FROZEN_TEXT)]
        return found + [forbidden(name, _FROZEN_TEXT) for name in names if not same(new.get(name), old.get(name))]

    return check


CONFIG_MAP = Rules(check=_check_config_map, check_update=_check_frozen("data", "binaryData"))


def _secret_defaults(secret: Object) -> None:
    fill_text(secret, type="Opaque")
    _encode_string_data(secret)


def _encode_string_data(secret: Object) -> None:
    """stringData is write-only: it is merged into data."""
    given_ = secret.pop("stringData", None)
    if not isinstance(given_, dict) or not given_:
        return
    encoded = {
        name: binascii.b2a_base64(value.encode("utf-8", "replace"), newline=False).decode()
        for name, value in given_.items()
        if isinstance(value, str)
    }
    data = secret.get("data")
    secret["data"] = {**(data if isinstance(data, dict) else {}), **encoded}


# Type of a secret -> required keys.
_NEEDED_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _check_secret(secret: Object) -> Findings:
    data, type_ = members(secret, "data"), text(secret, "type")
    found = [finding for name in data for finding in told(key("data", name), name, config_key(name))]
    if sum(_decoded_size(value) for value in data.values()) > DATA_SIZE_MAX:
        found.append(too_long("data", DATA_SIZE_MAX))
    found += [required(key("data", name)) for name in _NEEDED_KEYS.get(type_, ()) if name not in data]
    for name in (".dockercfg", ".dockerconfigjson"):
        if name in _NEEDED_KEYS.get(type_, ()) and name in data:
            found += _check_json(data[name], key("data", name))
    match type_:
        case "kubernetes.io/service-account-token":
            if not members(secret, "metadata", "annotations").get(_ACCOUNT_ANNOTATION):
                found.append(required(key("metadata.annotations", _ACCOUNT_ANNOTATION)))
        case "kubernetes.io/basic-auth" if "username" not in data and "password" not in data:
            found += [required("data[username]"), required("data[password]")]
        case "kubernetes.io/ssh-auth" if not data.get("ssh-privatekey"):
            found.append(required("data[ssh-privatekey]"))
    return found


def _check_json(encoded: Any, path: str) -> Findings:
    try:
        value = msgspec.json.decode(b64decode(encoded if isinstance(encoded, str) else ""))
        if isinstance(value, dict):
            return []
        reason = "expected a JSON object"
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        reason = str(error)
    return [invalid(path, "<secret contents redacted>", reason)]


def _check_secret_update(new: Object, old: Object, subresource: str) -> Findings:
    found = immutable(text(new, "type"), text(old, "type"), "type")
    frozen: Findings = _check_frozen("data")(new, old, subresource)
    return found + frozen


def _changed_secret(new: Object, old: Object, _subresource: str) -> None:
    if not text(new, "type"):
        new["type"] = text(old, "type")


SECRET = Rules(
    defaults=_secret_defaults,
    prepare_update=_changed_secret,
    check=_check_secret,
    check_update=_check_secret_update,
)

SERVICE_ACCOUNT = Rules()

# --- events ---

_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}


def _event_defaults(event: Object) -> None:
    fill(event, metadata={}, involvedObject={}, source={})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(name, None)
    fill(event, reportingComponent="", reportingInstance="")


def _check_event(event: Object) -> Findings:
    namespace, involved = text(event, "metadata", "namespace"), text(event, "involvedObject", "namespace")
    if not given(event, "eventTime"):
        fits = namespace == involved if involved else namespace in ("", "default")
        return [] if fits else [_event_clash(involved)]
    found = [] if involved or namespace in ("default", "kube-system") else [_event_clash(involved)]
    controller = text(event, "reportingComponent")
    found += named(controller, "reportingComponent", formats.label_key)
    for name in ("reportingInstance", "action", "reason"):
        if not text(event, name):
            found.append(required(name))
    for name, limit in _EVENT_LIMITS.items():
        value = event.get(name)
        # A character has at most four bytes.
        if isinstance(value, str) and len(value) * 4 > limit and byte_length(value) > limit:
            found.append(invalid(name, "", f"can have at most {limit} characters"))
    return found


def _event_clash(involved: str) -> Finding:
    return invalid("involvedObject.namespace", involved, "does not match event.namespace")


EVENT = Rules(name_format=formats.path_segment, defaults=_event_defaults, check=_check_event)
