"""Resource requests and limits of containers and pods: names and amounts.

Knows which resources are Kubernetes' own, which are extended, and which may be overcommitted. Claims are in `pod`.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.model.core_v1 import ResourceRequirements
from allot.core.quantity import Quantity, QuantityError
from allot.core.validation import formats
from allot.core.validation.fields import Findings, child, forbidden, invalid, key, not_supported, required
from allot.core.validation.object_meta import NEGATIVE_TEXT

_POD_LEVEL_RESOURCES = ("cpu", "memory")
_STANDARD_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
# Names without a domain that quotas may use; containers may use only those above.
_STANDARD_RESOURCES = frozenset(
    (
        *_STANDARD_CONTAINER_RESOURCES,
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_KUBERNETES_DOMAIN = "kubernetes.io/"
_HUGE_PAGES = "hugepages-"


def is_native_resource(name: str) -> bool:
    """Whether Kubernetes itself defines the resource; implicit names of device classes count as such."""
    return "/" not in name or _KUBERNETES_DOMAIN in name


def is_extended_resource(name: str) -> bool:
    """Whether the name is a well-formed extended resource."""
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return not formats.label_key(f"requests.{name}")


def resource_name(name: str, path: str) -> Findings:
    """A resource of any kind, with or without a domain."""
    messages = formats.label_key(name)
    if messages:
        return [invalid(path, name, message) for message in messages]
    standard = name in _STANDARD_RESOURCES or name.removeprefix("requests.").startswith(_HUGE_PAGES)
    if "/" not in name and not standard:
        return [invalid(path, name, "must be a standard resource type or fully qualified")]
    return []


def container_resource_name(name: str, path: str) -> Findings:
    """A resource that a container may request."""
    found = resource_name(name, path)
    if "/" not in name:
        if name not in _STANDARD_CONTAINER_RESOURCES and not name.startswith(_HUGE_PAGES):
            found.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native_resource(name) and not is_extended_resource(name):
        found.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return found


def pod_resource_name(name: str, path: str) -> Findings:
    """A resource that a pod may request as a whole."""
    found = resource_name(name, path)
    if found or name in _POD_LEVEL_RESOURCES or name.startswith(_HUGE_PAGES):
        return found
    return [not_supported(path, name, (*_POD_LEVEL_RESOURCES, _HUGE_PAGES))]


def check_resources(resources: ResourceRequirements, path: str, check_name: Callable[[str, str], Findings]) -> Findings:
    """Requests and limits of a container or pod."""
    limits_path, requests_path = child(path, "limits"), child(path, "requests")
    found: Findings = []
    for name, amount in resources.limits.items():
        where = key(limits_path, name)
        found += check_name(name, where) + _check_amount(name, amount, where)
    for name, amount in resources.requests.items():
        where = key(requests_path, name)
        found += check_name(name, where) + _check_amount(name, amount, where)
        found += _check_limit(name, amount, resources.limits.get(name), limits_path, requests_path)
    names = resources.limits.keys() | resources.requests.keys()
    if any(name.startswith(_HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        found.append(forbidden(path, "HugePages require cpu or memory"))
    return found


def _check_limit(name: str, amount: Quantity, limit: Quantity | None, limits_path: str, requests_path: str) -> Findings:
    overcommit = is_native_resource(name) and not name.startswith(_HUGE_PAGES)
    if limit is None:
        if overcommit:
            return []
        return [required(limits_path, "Limit must be set for non overcommitable resources")]
    if amount != limit and not overcommit:
        return [invalid(requests_path, amount, f"must be equal to {name} limit of {limit}")]
    if amount > limit:
        return [invalid(requests_path, amount, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _check_amount(name: str, amount: Quantity, path: str) -> Findings:
    found: Findings = []
    if amount.sign() < 0:
        found.append(invalid(path, amount, NEGATIVE_TEXT))
    if is_extended_resource(name) and amount.milli_value() % 1000:
        found.append(invalid(path, amount, "must be an integer"))
    if name.startswith(_HUGE_PAGES) and not _is_multiple_of_page(name, amount):
        found.append(invalid(path, amount, f"{amount} is not positive integer multiple of {name}"))
    return found


def _is_multiple_of_page(name: str, amount: Quantity) -> bool:
    try:
        page = Quantity.parse(name.removeprefix(_HUGE_PAGES))
    except QuantityError:
        return False
    return page.sign() > 0 and not page.milli_value() % 1000 and not amount.value() % page.value()
