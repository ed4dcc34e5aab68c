"""The environment of a container: variables, references to them, and what a pod can know about itself (the downward API).

Config maps and secrets are passed in as data; fetching them is up to the agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from allot.core.model.containers_v1 import ObjectFieldSelector, ResourceFieldSelector, RunnableContainer
from allot.core.model.pods_v1 import RunnablePod
from allot.core.quantity import Quantity

_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['([^']*)'\]")
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
# Names that the API accepts: printable, without `=`, which ends the name. A name may start with a digit.
_VARIABLE = re.compile(r"[ -<>-~]+")

Data = Mapping[str, bytes]
Fetched = Mapping[tuple[str, str], Data | None]


class BadEnvironment(Exception):
    """A variable that cannot be set, with the kubelet's message."""


class PodFacts:
    """Facts about a pod and its node that are not in the pod object."""

    def __init__(
        self,
        *,
        host_ips: Sequence[str] = (),
        pod_ips: Sequence[str] = (),
        allocatable: Mapping[str, Quantity] | None = None,
        services: Mapping[str, str] | None = None,
    ) -> None:
        """services: the variables for Services."""
        self.host_ips = tuple(host_ips)
        self.pod_ips = tuple(pod_ips)
        self.allocatable = allocatable or {}
        self.services = services or {}


def references(container: RunnableContainer) -> tuple[tuple[str, str], ...]:
    """The objects that a container's environment needs, as (configmap or secret, name)."""
    found: dict[tuple[str, str], None] = {}
    for source in container.env_from:
        if source.config_map_ref is not None:
            found["configmap", source.config_map_ref.name] = None
        if source.secret_ref is not None:
            found["secret", source.secret_ref.name] = None
    for variable in container.env:
        if variable.value_from is not None and variable.value_from.config_map_key_ref is not None:
            found["configmap", variable.value_from.config_map_key_ref.name] = None
        if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
            found["secret", variable.value_from.secret_key_ref.name] = None
    return tuple(found)


def environment(pod: RunnablePod, container: RunnableContainer, facts: PodFacts, fetched: Fetched) -> dict[str, str]:
    """All variables, later ones replacing earlier ones; BadEnvironment names one that is unavailable."""
    made = dict(facts.services)
    for source in container.env_from:
        for kind, reference in (("configmap", source.config_map_ref), ("secret", source.secret_ref)):
            if reference is None:
                continue
            data = fetched.get((kind, reference.name))
            if data is None:
                if reference.optional:
                    continue
                raise BadEnvironment(f'{kind} "{reference.name}" not found')
            for key, content in data.items():
                if _VARIABLE.fullmatch(source.prefix + key):
                    made[source.prefix + key] = content.decode(errors="replace")
    for variable in container.env:
        if variable.value_from is None:
            made[variable.name] = expand(variable.value, made)
            continue
        value = _value(pod, container, variable.name, facts, fetched)
        if value is not None:
            made[variable.name] = value
    return made


def _value(pod: RunnablePod, container: RunnableContainer, name: str, facts: PodFacts, fetched: Fetched) -> str | None:
    source = next(each.value_from for each in reversed(container.env) if each.name == name)
    assert source is not None, f"variable {name} has a source"
    if source.field_ref is not None:
        return field(pod, source.field_ref, facts)
    if source.resource_field_ref is not None:
        return resource_field(pod, source.resource_field_ref, facts, container.name)
    for kind, title, reference in (
        ("configmap", "ConfigMap", source.config_map_key_ref),
        ("secret", "Secret", source.secret_key_ref),
    ):
        if reference is None:
            continue
        data = fetched.get((kind, reference.name))
        if data is None:
            if reference.optional:
                return None
            raise BadEnvironment(f'{kind} "{reference.name}" not found')
        if reference.key not in data:
            if reference.optional:
                return None
            text = f"couldn't find key {reference.key} in {title} {pod.metadata.namespace}/{reference.name}"
            raise BadEnvironment(text)
        return data[reference.key].decode(errors="replace")
    return None


def field(pod: RunnablePod, reference: ObjectFieldSelector, facts: PodFacts) -> str:
    """A field of the pod as text."""
    path, metadata = reference.field_path, pod.metadata
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        source = metadata.labels if subscript[1] == "metadata.labels" else metadata.annotations
        return source.get(subscript[2], "")
    values: Mapping[str, Callable[[], str]] = {
        "metadata.name": lambda: metadata.name,
        "metadata.namespace": lambda: metadata.namespace,
        "metadata.uid": lambda: metadata.uid,
        "metadata.labels": lambda: _pairs(metadata.labels),
        "metadata.annotations": lambda: _pairs(metadata.annotations),
        "spec.nodeName": lambda: pod.spec.node_name,
        "spec.serviceAccountName": lambda: pod.spec.service_account_name,
        "status.hostIP": lambda: next(iter(facts.host_ips), ""),
        "status.hostIPs": lambda: ",".join(facts.host_ips),
        "status.podIP": lambda: next(iter(facts.pod_ips), ""),
        "status.podIPs": lambda: ",".join(facts.pod_ips),
    }
    if path not in values:
        raise BadEnvironment(f"unsupported fieldPath: {path}")
    return values[path]()


def _pairs(values: Mapping[str, str]) -> str:
    quoted = (f'{key}="{_escaped(values[key])}"' for key in sorted(values))
    return "\n".join(quoted)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_field(pod: RunnablePod, reference: ResourceFieldSelector, facts: PodFacts, own: str) -> str:
    """A container's request or limit, in whole units of the divisor, rounded up."""
    container = pod.container(reference.container_name or own)
    if container is None:
        raise BadEnvironment(f"container {reference.container_name} not found")
    kind, _, resource = reference.resource.partition(".")
    amounts = container.resources.limits if kind == "limits" else container.resources.requests
    amount = amounts.get(resource)
    if amount is None and kind == "limits":
        amount = facts.allocatable.get(resource)
    if amount is None:
        return "0"
    divisor = reference.divisor
    if divisor is None or divisor.sign() == 0:
        divisor = Quantity.from_int(1)
    milli, unit = amount.milli_value(), divisor.milli_value()
    return str(-(-milli // unit) if unit else 0)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """$(NAME) becomes the variable's value, $$ a dollar; an unknown name is left unchanged."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def expand_known(text: str, variables: Mapping[str, str]) -> str:
    """The same for texts that are useless with an unknown name: BadEnvironment."""
    for match in _REFERENCE.finditer(text):
        if match[0] != "$$" and match[1] not in variables:
            raise BadEnvironment(f'missing value for "{match[1]}"')
    return expand(text, variables)
