"""Converts pods that count device plugin devices (`nvidia.com/gpu: 2`) to pods with claims.

Each container gets as many devices as before, by its own request; the claims come from a template that is created for
the pod. Node labels about GPUs become selectors. The kubelet lent an init container devices of the
pod's other containers; it now names the claim of one that has enough.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from allot.core.advice.convert.changes import Confidence, shown
from allot.core.advice.convert.drivers import Driver, driver_of_extended_resource
from allot.core.advice.convert.expressions import member, quoted
from allot.core.advice.convert.objects import RESOURCE_V1, Object, at, mapping, members, put, text, without
from allot.core.advice.places import Path
from allot.core.advice.pod_templates import CONTAINERS, pod_spec_paths
from allot.core.quantity import Quantity, QuantityError

RULE = "device-plugin"
MIG_CLASS = "mig.nvidia.com"
NAME_LENGTH_MAX = 63
_NVIDIA = "gpu.nvidia.com"
# Resources of other plugins for parts of the same devices: they change the meaning of a device count.
_PARTS = ("nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpu.shared", "nvidia.com/gpumem-percentage")


class _Ask(msgspec.Struct, frozen=True):
    """One container's request for one resource."""

    resource: str
    count: int
    driver: Driver
    variant: str
    path: Path


def migrate(objects: Sequence[Object]) -> None:
    """Every pod of the objects, each preceded by the templates that it needs."""
    taken = {(found.namespace, found.name) for found in objects if found.kind == "ResourceClaimTemplate"}
    for found in objects:
        if found.value is not None:
            _migrate(found, taken)


def _migrate(found: Object, taken: set[tuple[str, str]]) -> None:
    for path in pod_spec_paths(found.present):
        spec = at(found.present, path)
        _name_remaining(found, path, spec)
        migration = _Migration(found, path, spec, taken)
        changed = migration.run()
        if changed is not None:
            found.value = put(found.present, path, changed)
            found.needs += migration.templates


def _name_remaining(found: Object, path: Path, spec: dict[str, Any]) -> None:
    """Reports devices that still need a device plugin."""
    for key in CONTAINERS:
        for index, container in enumerate(members(spec.get(key))):
            resources = mapping(mapping(container).get("resources"))
            limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
            for name in dict.fromkeys((*limits, *requests)):
                if not _is_plugin_resource(name) or driver_of_extended_resource(name) is not None or name in _PARTS:
                    continue
                where = "limits" if name in limits else "requests"
                given = shown(limits.get(name, requests.get(name)))
                found.book.warning(
                    (*path, key, index, "resources", where, name),
                    f"{name}: {given} still needs its device plugin: no DRA driver for it is known",
                    rule=RULE,
                )


def _is_plugin_resource(name: str) -> bool:
    """Whether a resource name has a vendor domain, as only device plugins use."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


class _Migration:
    """One pod spec."""

    def __init__(self, found: Object, path: Path, spec: dict[str, Any], taken: set[tuple[str, str]]) -> None:
        self.found = found
        self.book = found.book
        self.path = path
        self.spec = spec
        # Namespaces and names of existing templates.
        self.taken = taken
        self.templates: list[dict[str, Any]] = []
        self.claims: list[dict[str, Any]] = []
        # Claims of containers by resource, for init containers to borrow from.
        self.lendable: list[tuple[_Ask, str]] = []

    def run(self) -> dict[str, Any] | None:
        """The spec with claims; None if there is nothing to do or it is impossible."""
        asked = self._asked("containers"), self._asked("initContainers")
        if asked == ([], []) or self._is_refused(asked[0] + asked[1]):
            return None
        selectors, node_selector = self._node_labels(asked[0] + asked[1])
        spec = self.spec
        for key, asks in (("containers", asked[0]), ("initContainers", asked[1])):
            for index, ask in asks:
                container = members(spec.get(key))[index]
                name = self._claim(ask, text(container.get("name")), selectors, is_init=key == "initContainers")
                spec = put(spec, (key, index), self._with_claim(container, ask, name))
        spec = {**spec, "resourceClaims": [*members(spec.get("resourceClaims")), *self.claims]}
        if not spec["resourceClaims"]:
            del spec["resourceClaims"]
        if "nodeSelector" in spec and node_selector != spec["nodeSelector"]:
            spec = {**spec, "nodeSelector": node_selector} if node_selector else without(spec, "nodeSelector")
        return spec

    # --- what is asked for ---

    def _asked(self, key: str) -> list[tuple[int, _Ask]]:
        found: list[tuple[int, _Ask]] = []
        for index, container in enumerate(members(self.spec.get(key))):
            resources = mapping(mapping(container).get("resources"))
            limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
            for name in dict.fromkeys((*limits, *requests)):
                known = driver_of_extended_resource(name)
                if known is None:
                    continue
                where = "limits" if name in limits else "requests"
                path = (*self.path, key, index, "resources", where, name)
                count = _count(limits.get(name, requests.get(name)))
                if count is None or _count(requests.get(name, count)) != count:
                    given = shown({"limits": limits.get(name), "requests": requests.get(name)})
                    self.book.error(path, f"{name} is {given}: expected one whole number", rule=RULE)
                    continue
                found.append((index, _Ask(name, count, known[0], known[1], path)))
        return found

    def _is_refused(self, asked: list[tuple[int, _Ask]]) -> bool:
        """Whether other resources change the meaning of the counts."""
        refused = False
        for key in ("containers", "initContainers"):
            for index, container in enumerate(members(self.spec.get(key))):
                limits = mapping(mapping(mapping(container).get("resources")).get("limits"))
                for name in sorted(set(limits) & set(_PARTS)):
                    refused = True
                    self.book.error(
                        (*self.path, key, index, "resources", "limits", name),
                        f"{name}: {shown(limits[name])} asks for a part of a device, but claims of {asked[0][1].driver.name} are for whole devices",
                        rule=RULE,
                        hint="share a claim between pods, or claim a MIG device",
                    )
        return refused

    # --- claims ---

    def _claim(self, ask: _Ask, container: str, selectors: list[str], *, is_init: bool) -> str | None:
        """The name of the pod's claim for the container; none if it needs no devices."""
        if ask.count == 0:
            return None
        if is_init:
            for lender, name in self.lendable:
                if lender.resource == ask.resource and lender.count >= ask.count:
                    return name
        name = _claim_name(container, ask.resource.rpartition("/")[2])
        template = self._template_name(f"{self.found.name or self.found.kind.lower()}-{name}")
        class_name = MIG_CLASS if ask.variant else ask.driver.class_name
        exactly: dict[str, Any] = {"deviceClassName": class_name}
        if ask.variant:
            profile = member(ask.driver.name, "profile", capacity=False)
            selectors = [f"{profile} == {quoted(_mig_profile(ask.variant))}", *selectors]
        if selectors:
            exactly["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
        if ask.count != 1:
            exactly["count"] = ask.count
        metadata: dict[str, Any] = {"name": template}
        namespace = mapping(self.found.present.get("metadata")).get("namespace")
        if namespace:
            metadata["namespace"] = namespace
        request = {"name": "devices", "exactly": exactly}
        self.templates.append(
            {
                "apiVersion": RESOURCE_V1,
                "kind": "ResourceClaimTemplate",
                "metadata": metadata,
                "spec": {"spec": {"devices": {"requests": [request]}}},
            }
        )
        self.claims.append({"name": name, "resourceClaimTemplateName": template})
        self.lendable.append((ask, name))
        return name

    def _template_name(self, wanted: str) -> str:
        name, number = _label(wanted), 1
        while (self.found.namespace, name) in self.taken:
            number += 1
            suffix = f"-{number}"
            name = _label(wanted)[: NAME_LENGTH_MAX - len(suffix)] + suffix
        self.taken.add((self.found.namespace, name))
        return name

    def _with_claim(self, container: dict[str, Any], ask: _Ask, name: str | None) -> dict[str, Any]:
        resources = dict(mapping(container.get("resources")))
        for key in ("limits", "requests"):
            if key in resources:
                resources[key] = without(mapping(resources[key]), ask.resource)
                if not resources[key]:
                    del resources[key]
        old = f"{ask.resource}: {ask.count}"
        if name is None:
            self.book.change(ask.path, old, None, "no device is requested", rule=RULE)
        else:
            resources["claims"] = [*members(resources.get("claims")), {"name": name}]
            why = "devices are claimed by what they are, from the driver that replaces the device plugin"
            new = f"claims: [{{name: {name}}}] of {ask.count} x {MIG_CLASS if ask.variant else ask.driver.class_name}"
            self.book.change(ask.path, old, new, why, rule=RULE, confidence=Confidence.LIKELY)
        changed = without(container, "resources")
        return {**changed, "resources": resources} if resources else changed

    # --- labels of nodes ---

    def _node_labels(self, asked: list[tuple[int, _Ask]]) -> tuple[list[str], dict[str, Any]]:
        """Selectors for labels about GPUs, and the remaining labels."""
        given = mapping(self.spec.get("nodeSelector"))
        if {ask.driver.name for _, ask in asked} != {_NVIDIA}:
            return [], given
        selectors: list[str] = []
        kept: dict[str, Any] = {}
        for key, value in given.items():
            expression = _label_selector(key, value)
            path = (*self.path, "nodeSelector", key)
            if expression is not None:
                selectors.append(expression)
                why = "the claim chooses the GPU, and with it the node"
                self.book.change(path, f"{key}: {value}", expression, why, rule=RULE, confidence=Confidence.LIKELY)
                continue
            kept[key] = value
            if key.startswith("nvidia.com/"):
                message = f"{key}: {shown(value)} stays a node label, which GPU feature discovery must set"
                self.book.warning(path, message, rule=RULE)
        return selectors, kept


def _claim_name(container: str, resource: str) -> str:
    if resource.startswith(container):
        return _label(resource)
    return _label(container if container.endswith(resource) else f"{container}-{resource}")


def _count(value: Any) -> int | None:
    """A number of devices; None if it is not a number."""
    try:
        quantity = Quantity.parse(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    except QuantityError:
        return None
    if quantity is None or quantity.nano < 0 or quantity != Quantity.from_int(quantity.value()):
        return None
    return quantity.value()


def _mig_profile(variant: str) -> str:
    """`1g.5gb.me` in the driver's form: a plus is not allowed in resource names."""
    return re.sub(r"\.me$", "+me", variant)


def _label_selector(key: str, value: Any) -> str | None:
    """What a label of GPU feature discovery says about the device. Labels have hyphens instead of spaces."""
    if not isinstance(value, str):
        return None
    if key == "nvidia.com/gpu.product" and not re.search(r"-(SHARED|MIG-\S+)$", value):
        return f'{member(_NVIDIA, "productName", capacity=False)}.replace(" ", "-") == {quoted(value)}'
    if key == "nvidia.com/gpu.family":
        return f"{member(_NVIDIA, 'architecture', capacity=False)}.lowerAscii() == {quoted(value.lower())}"
    return None


def _label(text: str) -> str:
    """A DNS label."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")[:NAME_LENGTH_MAX].strip("-") or "devices"
