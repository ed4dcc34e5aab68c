"""DaemonSet pods of new nodes: they use resources and devices before other pods do.

Claims are created from their templates, as for every pod. Claims that use nothing (adminAccess), claims with a missing
template, and claims shared by name, which new nodes do not add to, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from allot.core.autoscaling.templates import Template
from allot.core.model import resource_v1 as api
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError, decode_served
from allot.core.model.core_v1 import Pod, PodResourceClaimStatus
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.workloads.daemonset_nodes import placement_of
from allot.core.workloads.pod_templates import template_value

# By namespace and name.
ClaimTemplates = Mapping[tuple[str, str], api.ResourceClaimTemplate]


def claim_templates(found: Iterable[api.ResourceClaimTemplate]) -> ClaimTemplates:
    """Templates by namespace and name."""
    return {(each.metadata.namespace, each.metadata.name): each for each in found}


def with_daemons(template: Template, daemons: Iterable[DaemonSet], templates: ClaimTemplates | None = None) -> Template:
    """The template with the pods that these DaemonSets would run on it. Those with an invalid template run nowhere."""
    pods = []
    claims: list[api.ResourceClaim] = []
    for daemon in sorted(daemons, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        made = _pod(daemon, template)
        if made is not None:
            made, own = _with_claims(made, templates or {})
            pods.append(made)
            claims += own
    return replace(template, pods=tuple(pods), claims=tuple(claims))


def _with_claims(pod: Pod, templates: ClaimTemplates) -> tuple[Pod, list[api.ResourceClaim]]:
    """The pod with the claims that use devices."""
    metadata = pod.metadata
    owner = OwnerReference(api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True)
    entries, statuses, claims = [], [], []
    for entry in pod.spec.resource_claims:
        found = templates.get((metadata.namespace, entry.resource_claim_template_name or ""))
        if found is None or all(_takes_nothing(each) for each in found.spec.spec.devices.requests):
            continue
        name = f"{metadata.name}-{entry.name}"
        own = ObjectMeta(name=name, namespace=metadata.namespace, uid=f"daemon:{name}", owner_references=(owner,))
        claims.append(api.ResourceClaim(metadata=own, spec=found.spec.spec))
        entries.append(entry)
        statuses.append(PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
    spec = replace(pod.spec, resource_claims=tuple(entries))
    return replace(pod, spec=spec, status=replace(pod.status, resource_claim_statuses=tuple(statuses))), claims


def _takes_nothing(request: api.DeviceRequest) -> bool:
    return request.exactly is not None and bool(request.exactly.admin_access)


def _pod(daemon: DaemonSet, template: Template) -> Pod | None:
    if daemon.spec.template is None:
        return None
    try:
        if not placement_of(daemon.spec.template).judge(template.node)[0]:
            return None
        value = template_value(daemon.spec.template)
        made = decode_served({"metadata": value.get("metadata") or {}, "spec": value.get("spec") or {}}, Pod)
    except DecodeError:
        return None
    name = f"{daemon.metadata.namespace}-{daemon.metadata.name}"
    metadata = ObjectMeta(
        name=name, namespace=daemon.metadata.namespace, uid=f"daemon:{name}", labels=made.metadata.labels
    )
    spec = replace(made.spec, node_name=template.node.metadata.name)
    return replace(made, metadata=metadata, spec=spec)
