"""ComputeDomains: the objects of each, its nodes and their state, and cleanup.

A domain gets a template for the channels of its pods, and a DaemonSet whose pods are the IMEX daemons. The driver labels a node
when the first pod with a channel arrives there; the DaemonSet follows the label. The state of the daemons is the domain's status.
Objects are linked by the label and by the uid in their names, because owners cannot be in other namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from allot.core.lifecycle.actions import (
    FOREGROUND,
    NORMAL,
    WARNING,
    Action,
    Answers,
    Create,
    Delete,
    Emit,
    LookUp,
    Patch,
    PatchType,
    RemoveFinalizer,
    Resource,
    Retry,
    Together,
    resource_of,
)
from allot.core.model.compute_domains import (
    ALL,
    API_VERSION,
    CHANNEL_CLASS,
    CHANNEL_CONFIG,
    CLIQUE_NODES_MAX,
    DAEMON_CLASS,
    DAEMON_CONFIG,
    DOMAIN_LABEL,
    DRIVER,
    DRIVER_NAMESPACE,
    GROUP,
    KIND,
    NOT_READY,
    PLURAL,
    READY,
    SINGLE,
    VERSION,
    ComputeDomain,
    ComputeDomainNode,
    label_removal,
)
from allot.core.model.core_v1 import Namespace, Node, Pod
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import ResourceClaimTemplate
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.resources import DAEMON_SETS

Object = Mapping[str, Any]

COMPUTE_DOMAINS = Resource(group=GROUP, version=VERSION, plural=PLURAL, kind=KIND, namespaced=True)
# The finalizer has the same name as the label, as in NVIDIA's driver.
FINALIZER = DOMAIN_LABEL
TARGET_LABEL = f"{GROUP}/computeDomainTarget"
IMAGE = "ubuntu:22.04"
_CONFIG_FILE = "/imexd/imexd.cfg"
# The program comes from the node, with the daemon device, because it must match the driver's version.
_RUN = ("nvidia-imex", "-c", _CONFIG_FILE)
_CHECK = ("sh", "-c", f'test "$(nvidia-imex-ctl -c {_CONFIG_FILE} -q)" = READY')
_TEMPLATES, _NODES, _NAMESPACES = resource_of(ResourceClaimTemplate), resource_of(Node), resource_of(Namespace)
_NO_INDEX = -1


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What exists of a domain. object: as served; templates, daemon_sets, nodes: those with its label."""

    domain: ComputeDomain | None = None
    object: Object | None = None
    templates: tuple[ResourceClaimTemplate, ...] = ()
    # The template with the name that the domain asks for, regardless of its owner.
    named_template: ResourceClaimTemplate | None = None
    daemon_sets: tuple[ObjectMeta, ...] = ()
    daemons: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    # The cliques of the daemons' nodes.
    cliques: Mapping[str, str] = {}
    has_namespace: bool = True


def daemon_name(uid: str) -> str:
    """The name of a domain's DaemonSet and of the template for its claims."""
    return f"computedomain-daemon-{uid}"


def reconcile(uid: str, view: View, answers: Answers) -> tuple[Action, ...]:
    """What to do about a domain, or about its leftovers."""
    domain = view.domain
    if domain is None:
        return _sweep(uid, view, answers)
    if domain.metadata.deletion_timestamp is not None:
        return _delete(view)
    if FINALIZER not in domain.metadata.finalizers:
        # Before creating anything that would have to be removed.
        metadata = domain.metadata
        guarded = {"resourceVersion": metadata.resource_version, "finalizers": [*metadata.finalizers, FINALIZER]}
        return (_patched(domain, {"metadata": guarded}),)
    return (*_missing(domain, view), *_status(domain, view))


# --- what a domain has ---


def _missing(domain: ComputeDomain, view: View) -> Iterator[Action]:
    uid = domain.metadata.uid
    if not view.has_namespace:
        yield Create(resource=_NAMESPACES, object=Namespace(metadata=ObjectMeta(name=DRIVER_NAMESPACE)), may_exist=True)
    if not any(_is(template, DRIVER_NAMESPACE, daemon_name(uid)) for template in view.templates):
        yield _created(_TEMPLATES, _daemon_template(uid))
    if not view.daemon_sets:
        yield _created(DAEMON_SETS, _daemon_set(uid))
    named = view.named_template
    if named is None:
        yield _created(_TEMPLATES, _channel_template(domain))
    elif named.metadata.labels.get(DOMAIN_LABEL) != uid:
        note = (
            f"ResourceClaimTemplate {named.metadata.name} exists and is not this ComputeDomain's, "
            "so no channel is available: delete it, or name another one in spec.channel.resourceClaimTemplate"
        )
        yield _told(domain, WARNING, "TemplateExists", note)
        yield Retry(message=note)


def _is(template: ResourceClaimTemplate, namespace: str, name: str) -> bool:
    return (template.metadata.namespace, template.metadata.name) == (namespace, name)


def _created(resource: Resource, object_: Object) -> Create:
    # Caches lag: one of that name was created a moment ago.
    return Create(resource=resource, object=object_, namespace=object_["metadata"]["namespace"], may_exist=True)


def _metadata(uid: str, namespace: str, name: str, target: str) -> Object:
    return {"namespace": namespace, "name": name, "labels": {DOMAIN_LABEL: uid, TARGET_LABEL: target}}


def _channel_template(domain: ComputeDomain) -> Object:
    channel, metadata = domain.spec.channel, domain.metadata
    # A value from a later version must not keep pods from starting.
    mode = channel.allocation_mode if channel.allocation_mode in (SINGLE, ALL) else SINGLE
    return _template(
        _metadata(metadata.uid, metadata.namespace, channel.resource_claim_template.name, "Workload"),
        "channel",
        CHANNEL_CLASS,
        {"apiVersion": API_VERSION, "kind": CHANNEL_CONFIG, "domainID": metadata.uid, "allocationMode": mode},
    )


def _daemon_template(uid: str) -> Object:
    return _template(
        _metadata(uid, DRIVER_NAMESPACE, daemon_name(uid), "Daemon"),
        "daemon",
        DAEMON_CLASS,
        {"apiVersion": API_VERSION, "kind": DAEMON_CONFIG, "domainID": uid},
    )


def _template(metadata: Object, request: str, class_: str, parameters: Object) -> Object:
    devices = {
        "requests": [{"name": request, "exactly": {"deviceClassName": class_}}],
        "config": [{"requests": [request], "opaque": {"driver": DRIVER, "parameters": parameters}}],
    }
    # Claims carry the label too, so that they can be told apart.
    inner = {"metadata": {"labels": metadata["labels"]}, "spec": {"devices": devices}}
    return {
        "apiVersion": _TEMPLATES.api_version,
        "kind": _TEMPLATES.kind,
        "metadata": metadata,
        "spec": inner,
    }


def _daemon_set(uid: str) -> Object:
    def probe(period: int, failures: int) -> Object:
        return {
            "exec": {"command": list(_CHECK)},
            "periodSeconds": period,
            "failureThreshold": failures,
            # A busy machine is not a broken one.
            "timeoutSeconds": 10,
        }

    def from_field(name: str, path: str) -> Object:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    labels = {DOMAIN_LABEL: uid}
    container = {
        "name": "compute-domain-daemon",
        "image": IMAGE,
        "command": list(_RUN),
        "env": [
            from_field("NODE_NAME", "spec.nodeName"),
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_UID", "metadata.uid"),
            from_field("POD_IP", "status.podIP"),
            {"name": "MAX_NODES_PER_IMEX_DOMAIN", "value": str(CLIQUE_NODES_MAX)},
        ],
        "resources": {"claims": [{"name": "compute-domain-daemon"}]},
        "startupProbe": probe(1, 1200),
        "readinessProbe": probe(10, 1),
        "livenessProbe": probe(60, 20),
    }
    pod = {
        "nodeSelector": labels,
        "tolerations": [{"operator": "Exists"}],
        # It makes no requests, so it needs no permissions.
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "resourceClaims": [{"name": "compute-domain-daemon", "resourceClaimTemplateName": daemon_name(uid)}],
    }
    return {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {"namespace": DRIVER_NAMESPACE, "name": daemon_name(uid), "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            # All daemons at once: a domain with only some of them replaced does not work.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


# --- status ---


def _status(domain: ComputeDomain, view: View) -> Iterator[Action]:
    nodes = _nodes(domain, view)
    are_ready = all(each.status == READY for each in nodes)
    status = READY if len(nodes) >= domain.spec.num_nodes and are_ready else NOT_READY
    known = domain.status
    if (known.status, known.nodes) == (status, nodes):
        return
    patch = {
        "metadata": {"uid": domain.metadata.uid},
        "status": {"status": status, "nodes": [_entry(each) for each in nodes]},
    }
    yield _patched(domain, patch, "status")
    if status != known.status and known.status:
        ready = sum(each.status == READY for each in nodes)
        note = f"{ready} of {max(len(nodes), domain.spec.num_nodes)} nodes are ready"
        yield _told(domain, NORMAL, status, note)
    had_room = all(each.index != _NO_INDEX or not each.clique_id for each in known.nodes)
    excluded = [each for each in nodes if each.index == _NO_INDEX and each.clique_id]
    if excluded and had_room:
        names = ", ".join(each.name for each in excluded)
        note = f"no place left for {names}: at most {CLIQUE_NODES_MAX} nodes of clique {excluded[0].clique_id} can be in a domain"
        yield _told(domain, WARNING, "CliqueFull", note)


def _entry(node: ComputeDomainNode) -> Object:
    return {
        "name": node.name,
        "ipAddress": node.ip_address,
        "cliqueID": node.clique_id,
        "index": node.index,
        "status": node.status,
    }


def _nodes(domain: ComputeDomain, view: View) -> tuple[ComputeDomainNode, ...]:
    """The nodes with daemons. A node keeps its index in a clique as long as it stays: peers know each other by it."""
    daemons = _daemon_of_each_node(view.daemons)
    places: dict[str, dict[int, str]] = {}
    for known in domain.status.nodes:
        is_there = known.name in daemons and view.cliques.get(known.name, "") == known.clique_id
        if is_there and known.clique_id and 0 <= known.index < CLIQUE_NODES_MAX:
            places.setdefault(known.clique_id, {}).setdefault(known.index, known.name)
    nodes = []
    for name, pod in sorted(daemons.items()):
        clique = view.cliques.get(name, "")
        index = _place(name, places.setdefault(clique, {})) if clique else _NO_INDEX
        has_place = index != _NO_INDEX or not clique
        nodes.append(
            ComputeDomainNode(
                name=name,
                ip_address=next((each.ip for each in pod.status.pod_ips), ""),
                clique_id=clique,
                index=index,
                status=READY if has_place and is_ready(pod) else NOT_READY,
            )
        )
    return tuple(sorted(nodes, key=lambda each: (each.clique_id, each.index, each.name)))


def _daemon_of_each_node(daemons: Iterable[Pod]) -> dict[str, Pod]:
    """Terminating pods do not count; of two pods, the ready one, then the newer one."""
    found: dict[str, Pod] = {}
    for pod in sorted(
        daemons, key=lambda pod: (is_ready(pod), pod.metadata.creation_timestamp or "", pod.metadata.name)
    ):
        is_alive = pod.metadata.deletion_timestamp is None and pod.status.phase not in ("Succeeded", "Failed")
        if is_alive and pod.spec.node_name:
            found[pod.spec.node_name] = pod
    return found


def _place(name: str, taken: dict[int, str]) -> int:
    for index, owner in taken.items():
        if owner == name:
            return index
    index = next((index for index in range(CLIQUE_NODES_MAX) if index not in taken), _NO_INDEX)
    if index != _NO_INDEX:
        taken[index] = name
    return index


def _patched(domain: ComputeDomain, patch: Object, subresource: str = "") -> Patch:
    metadata = domain.metadata
    return Patch(
        resource=COMPUTE_DOMAINS,
        name=metadata.name,
        namespace=metadata.namespace,
        patch=patch,
        subresource=subresource,
    )


def _told(domain: ComputeDomain, type_: str, reason: str, note: str) -> Emit:
    metadata = domain.metadata
    regarding = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
    }
    return Emit(regarding=regarding, type=type_, reason=reason, action="Reconciling", note=note)


# --- the end ---


def _delete(view: View) -> tuple[Action, ...]:
    domain = view.domain
    assert domain is not None and view.object is not None
    if _has_rest(view):
        return _removal(domain.metadata.uid, view)
    if FINALIZER not in domain.metadata.finalizers:
        return ()
    return (RemoveFinalizer(resource=COMPUTE_DOMAINS, object=view.object, finalizer=FINALIZER),)


def _sweep(uid: str, view: View, answers: Answers) -> tuple[Action, ...]:
    """What remains of a domain that was deleted without us, or a label that arrived after its deletion."""
    if not _has_rest(view):
        return ()
    # The cache of domains may lag behind that of nodes.
    question = LookUp(resource=COMPUTE_DOMAINS)
    if question not in answers:
        return (question,)
    if any(each["metadata"]["uid"] == uid for each in answers[question]):
        return ()
    return _removal(uid, view)


def _has_rest(view: View) -> bool:
    return bool(view.templates or view.daemon_sets or view.nodes)


def _removal(uid: str, view: View) -> tuple[Action, ...]:
    """First the domain's objects, the daemons with their set; once those are gone, which is an event, the nodes' labels."""
    deletes = (
        *(_deleted(_TEMPLATES, each.metadata) for each in view.templates if each.metadata.deletion_timestamp is None),
        *(_deleted(DAEMON_SETS, each, FOREGROUND) for each in view.daemon_sets if each.deletion_timestamp is None),
    )
    if deletes:
        return (Together(writes=deletes),)
    if view.templates or view.daemon_sets or not view.nodes:
        return ()
    patch = label_removal(uid)
    unlabelled = (
        Patch(resource=_NODES, name=node.metadata.name, patch=patch, type=PatchType.JSON) for node in view.nodes
    )
    return (Together(writes=tuple(unlabelled)),)


def _deleted(resource: Resource, metadata: ObjectMeta, propagation: str = "") -> Delete:
    return Delete(
        resource=resource,
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        propagation_policy=propagation,
    )
