"""Defaults of pods and of the pod templates in workloads.

A pod gets more than a template: limits become requests, service links are on, ports of the host network are published.
Not covered: defaults of volume types found only in old clusters (rbd, iscsi, scaleIO, azureDisk, ...).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from allot.core.quantity import Quantity, QuantityError
from allot.core.validation.builtin.values import Object, fill, fill_text, flag, items, members, number, present, text

GRACE_PERIOD_SECONDS = 30
_HOUR_SECONDS = 3600
_FILE_MODE = 0o644
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_MODE_SOURCES = ("secret", "configMap", "downwardAPI", "projected")


def pod_defaults(pod: Object) -> None:
    """A pod as a server reads it."""
    spec = present(pod, "spec")
    pod_spec_defaults(spec)
    period = number(spec, "terminationGracePeriodSeconds")
    if period is not None and period < 0:
        spec["terminationGracePeriodSeconds"] = 1
    fill(spec, enableServiceLinks=True)
    for name in ("initContainers", "containers"):
        for container in items(spec, name):
            _requests_from_limits(container)
            if flag(spec, "hostNetwork"):
                for port in items(container, "ports"):
                    if not port.get("hostPort"):
                        port["hostPort"] = port.get("containerPort")
    _pod_addresses(pod.get("status"))


def template_defaults(template: Any) -> None:
    """A pod template as a server reads it."""
    if isinstance(template, dict):
        fill(template, metadata={})
        pod_spec_defaults(present(template, "spec"))


def pod_spec_defaults(spec: Object) -> None:
    """Defaults shared by pods and templates."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    fill_text(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", schedulerName="default-scheduler")
    fill(spec, terminationGracePeriodSeconds=GRACE_PERIOD_SECONDS, securityContext={})
    for name in _CONTAINER_LISTS:
        for container in items(spec, name):
            _container(container)
    for volume in items(spec, "volumes"):
        volume_defaults(volume)
    canonical_quantities(spec.get("overhead"))
    for name in ("requests", "limits"):
        canonical_quantities(members(spec, "resources").get(name))


def pull_policy(image: str) -> str:
    """Images whose tag may move are always pulled."""
    name = image.partition("@")[0].rpartition("/")[2]
    tagged, digest = ":" in name, "@" in image
    return "Always" if name.endswith(":latest") or (not tagged and not digest) else "IfNotPresent"


def _container(container: Object) -> None:
    fill_text(
        container,
        imagePullPolicy=pull_policy(text(container, "image")),
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
    )
    fill(container, resources={})
    for name in ("requests", "limits"):
        canonical_quantities(members(container, "resources").get(name))
    for port in items(container, "ports"):
        fill_text(port, protocol="TCP")
    for name in _PROBES:
        probe = container.get(name)
        if isinstance(probe, dict):
            _probe(probe)
    for name in ("postStart", "preStop"):
        _http_get(members(container, "lifecycle", name))
    for variable in items(container, "env"):
        _field_reference(members(variable, "valueFrom"))


def _probe(probe: Object) -> None:
    for name, default in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        if not probe.get(name):
            probe[name] = default
    _http_get(probe)
    if isinstance(probe.get("grpc"), dict):
        fill(probe["grpc"], service="")


def _http_get(handler: Object) -> None:
    if isinstance(handler.get("httpGet"), dict):
        fill_text(handler["httpGet"], path="/", scheme="HTTP")


def _field_reference(source: Object) -> None:
    if isinstance(source.get("fieldRef"), dict):
        fill_text(source["fieldRef"], apiVersion="v1")
    reference = source.get("resourceFieldRef")
    if isinstance(reference, dict):
        fill(reference, divisor="0")


def volume_defaults(volume: Object) -> None:
    """A volume without a source is an emptyDir; files are readable by all unless the volume says otherwise."""
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
    for name in _MODE_SOURCES:
        if isinstance(volume.get(name), dict):
            fill(volume[name], defaultMode=_FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        fill(volume["hostPath"], type="")
    if isinstance(volume.get("image"), dict):
        fill_text(volume["image"], pullPolicy=pull_policy(text(volume["image"], "reference")))
    for item in items(volume, "downwardAPI", "items"):
        _field_reference(item)
    for source in items(volume, "projected", "sources"):
        for item in items(source, "downwardAPI", "items"):
            _field_reference(item)
        if isinstance(source.get("serviceAccountToken"), dict):
            fill(source["serviceAccountToken"], expirationSeconds=_HOUR_SECONDS)
    template = members(volume, "ephemeral", "volumeClaimTemplate")
    if isinstance(template.get("spec"), dict):
        fill(template["spec"], volumeMode="Filesystem")


def _requests_from_limits(container: Object) -> None:
    resources = members(container, "resources")
    limits, requests = resources.get("limits"), resources.get("requests")
    if isinstance(limits, dict) and limits and isinstance(requests, dict | None):
        resources["requests"] = {**limits, **(requests or {})}


def canonical_quantities(amounts: Any) -> None:
    """Amounts in Kubernetes' canonical form: 1000m is 1."""
    if not isinstance(amounts, dict):
        return
    for name, amount in amounts.items():
        canonical = canonical_quantity(amount)
        if canonical is not None:
            amounts[name] = canonical


def canonical_quantity(amount: Any) -> str | None:
    """Kubernetes' canonical form; None if not a quantity."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return None
    return _canonical(str(amount))


@lru_cache(maxsize=1024)
def _canonical(text_: str) -> str | None:
    try:
        return str(Quantity.parse(text_))
    except QuantityError:
        return None


def _pod_addresses(status: Any) -> None:
    if not isinstance(status, dict):
        return
    address, addresses = text(status, "podIP"), items(status, "podIPs")
    if address and (not addresses or text(addresses[0], "ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif not address and addresses:
        status["podIP"] = text(addresses[0], "ip")


# --- quality of service ---


def quality_of_service(pod: Object) -> str:
    """Guaranteed, Burstable or BestEffort, as the kubelet treats the pod when memory runs out."""
    spec = members(pod, "spec")
    resources = members(spec, "resources")
    parts = [resources] if resources.get("requests") or resources.get("limits") else [
        members(container, "resources") for name in ("initContainers", "containers") for container in items(spec, name)
    ]  # fmt: skip
    sums: dict[str, dict[str, Quantity]] = {"requests": {}, "limits": {}}
    guaranteed = True
    for part in parts:
        for side in ("requests", "limits"):
            for name, amount in members(part, side).items():
                quantity = _positive(amount) if name in ("cpu", "memory") else None
                if quantity is not None:
                    known = sums[side].get(name)
                    sums[side][name] = quantity if known is None else known.add(quantity)
        limits = members(part, "limits")
        guaranteed &= all(_positive(limits.get(name)) is not None for name in ("cpu", "memory"))
    if not sums["requests"] and not sums["limits"]:
        return "BestEffort"
    same = all(sums["limits"].get(name) == amount for name, amount in sums["requests"].items())
    return "Guaranteed" if guaranteed and same and len(sums["requests"]) == len(sums["limits"]) else "Burstable"


def _positive(amount: Any) -> Quantity | None:
    if not isinstance(amount, str | int) or isinstance(amount, bool):
        return None
    try:
        quantity = Quantity.parse(str(amount))
    except QuantityError:
        return None
    return quantity if quantity.sign() > 0 else None
