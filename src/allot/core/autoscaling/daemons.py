"""Pods that come with every node: what DaemonSets would run on a new one takes room before anybody else does.

Claims of such pods are left out: which devices they would get is not known before the node is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from allot.core.autoscaling.templates import Template
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.codec import DecodeError, decode_served
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta
from allot.core.workloads.daemonset_nodes import placement_of
from allot.core.workloads.pod_templates import template_value


def with_daemons(template: Template, daemons: Iterable[DaemonSet]) -> Template:
    """The template with the pods that these would run on it. One whose template makes no sense runs nowhere."""
    pods = []
    for daemon in sorted(daemons, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        made = _pod(daemon, template)
        if made is not None:
            pods.append(made)
    return replace(template, pods=tuple(pods))


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
    spec = replace(made.spec, node_name=template.node.metadata.name, resource_claims=())
    return replace(made, metadata=metadata, spec=spec)
