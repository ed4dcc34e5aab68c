"""What a node may do, and what belongs to it."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.access.default_policy import node_rules
from allot.core.access.attributes import NO_OPINION, Attributes, Decision, User
from allot.core.access.node_authorizer import NodeAuthorizer
from allot.core.access.node_graph import NodeGraph

NODE = User("system:node:n1", groups=("system:nodes", "system:authenticated"))


def pod(node: str = "n1", status: dict[str, Any] | None = None, mirror: bool = False, **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": {"kubernetes.io/config.mirror": "x"}} if mirror else {}
    return {"metadata": metadata, "spec": {"nodeName": node, **spec}, "status": status or {}}


FULL = pod(
    serviceAccountName="bot",
    imagePullSecrets=[{"name": "pull"}],
    containers=[
        {
            "envFrom": [{"secretRef": {"name": "from-secret"}}, {"configMapRef": {"name": "from-config"}}],
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "key-secret"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "key-config"}}},
                {"name": "C", "value": "plain"},
            ],
        }
    ],
    ephemeralContainers=[{"envFrom": [{"secretRef": {"name": "debug-secret"}}]}],
    volumes=[
        {"name": "s", "secret": {"secretName": "volume-secret"}},
        {"name": "c", "configMap": {"name": "volume-config"}},
        {
            "name": "p",
            "projected": {"sources": [{"secret": {"name": "projected-secret"}}, {"configMap": {"name": "pc"}}]},
        },
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
    ],
    resourceClaims=[
        {"name": "direct", "resourceClaimName": "claim-direct"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "pending", "resourceClaimTemplateName": "t"},
    ],
    status={
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "claim-made"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "claim-extended"},
    },
)

VOLUME = {
    "spec": {
        "claimRef": {"namespace": "default", "name": "data"},
        "csi": {"nodePublishSecretRef": {"namespace": "storage", "name": "csi-secret"}},
    }
}


def graph() -> NodeGraph:
    found = NodeGraph()
    found.apply("pods", "default", "full", FULL)
    found.apply("pods", "default", "other", pod("n2", imagePullSecrets=[{"name": "others"}]))
    found.apply("pods", "default", "waiting", pod("", imagePullSecrets=[{"name": "unbound"}]))
    found.apply("pods", "default", "mirror", pod(mirror=True, imagePullSecrets=[{"name": "mirrored"}]))
    found.apply("persistentvolumes", "", "pv", VOLUME)
    found.apply("resourceslices", "", "mine", {"spec": {"nodeName": "n1"}})
    found.apply("resourceslices", "", "theirs", {"spec": {"nodeName": "n2"}})
    found.apply("resourceslices", "", "network", {"spec": {"allNodes": True}})
    found.apply("volumeattachments", "", "va", {"spec": {"nodeName": "n1"}})
    return found


def decide(request: str, *, user: User = NODE, namespace: str = "default", selector: str = "") -> Decision:
    """request: `verb group/resource[/subresource] [name]`."""
    verb, what, *names = request.split()
    group, resource, *rest = what.split("/")
    asked = Attributes(
        user=user,
        verb=verb,
        group="" if group == "core" else group,
        resource=resource,
        subresource=rest[0] if rest else "",
        namespace=namespace,
        name=names[0] if names else "",
        field_selector=selector,
    )
    return NodeAuthorizer(graph(), node_rules()).authorize(asked)


@pytest.mark.parametrize(
    "request_",
    [
        *(
            f"get core/secrets {name}"
            for name in ["pull", "from-secret", "key-secret", "debug-secret", "volume-secret", "projected-secret"]
        ),
        *(f"get core/configmaps {name}" for name in ["from-config", "key-config", "volume-config", "pc"]),
        "watch core/secrets pull",
        "get core/serviceaccounts bot",
        "create core/serviceaccounts/token bot",
        "get core/persistentvolumeclaims data",
        "get core/persistentvolumeclaims full-e",
        "patch core/persistentvolumeclaims/status data",
        "get resource.k8s.io/resourceclaims claim-direct",
        "get resource.k8s.io/resourceclaims claim-made",
        "get resource.k8s.io/resourceclaims claim-extended",
        "get core/pods full",
        "create core/pods",
        "patch core/pods/status other",
        "create core/pods/eviction full",
        "create core/nodes",
        "get core/nodes n1",
        "patch core/nodes/status n1",
        "list core/services",
        "create certificates.k8s.io/certificatesigningrequests",
    ],
)
def test_a_node_may_see_what_its_pods_use_and_do_its_work(request_: str) -> None:
    assert decide(request_) == Decision(True)


@pytest.mark.parametrize(
    "request_",
    [
        "get core/persistentvolumes pv",
        "get resource.k8s.io/resourceslices mine",
        "delete resource.k8s.io/resourceslices mine",
        "create resource.k8s.io/resourceslices",
        "get storage.k8s.io/volumeattachments va",
        "get storage.k8s.io/csinodes n1",
    ],
)
def test_a_node_may_see_cluster_wide_objects_of_its_own(request_: str) -> None:
    assert decide(request_, namespace="") == Decision(True)


def test_a_secret_of_a_volume_belongs_to_the_node_that_mounts_it() -> None:
    assert decide("get core/secrets csi-secret", namespace="storage") == Decision(True)


NOT_RELATED = "no relationship found between node 'n1' and this object"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ("get core/secrets others", NOT_RELATED),
        ("get core/secrets unbound", NOT_RELATED),
        ("get core/secrets mirrored", NOT_RELATED),
        ("get core/secrets unknown", NOT_RELATED),
        ("list core/secrets", "No Object name found"),
        ("update core/secrets pull", "can only read resources of this type"),
        ("get resource.k8s.io/resourceclaims claim-of-others", NOT_RELATED),
        ("list resource.k8s.io/resourceclaims", "can only get individual resources of this type"),
        ("get resource.k8s.io/resourceclaims/status claim-direct", "cannot get subresource"),
        ("get resource.k8s.io/resourceslices theirs", NOT_RELATED),
        ("get resource.k8s.io/resourceslices network", NOT_RELATED),
        (
            "list resource.k8s.io/resourceslices",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        ("list core/pods", "can only list/watch pods with spec.nodeName field selector"),
        ("get core/pods other", NOT_RELATED),
        ("get core/nodes n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("list core/nodes", "node 'n1' cannot read all nodes, only its own Node object"),
        ("delete core/nodes n1", ""),
        ("create core/serviceaccounts/token unknown", NOT_RELATED),
        ("list core/serviceaccounts", "can only create tokens for individual service accounts"),
        ("get coordination.k8s.io/leases n1", 'can only access leases in the "kube-node-lease" system namespace'),
        ("create apps/deployments", ""),
    ],
)
def test_a_node_may_not_see_what_is_not_its_own(request_: str, reason: str) -> None:
    assert decide(request_) == Decision(False, reason)


@pytest.mark.parametrize("resource", ["core/pods", "resource.k8s.io/resourceslices"])
def test_lists_and_watches_need_the_nodes_own_selector(resource: str) -> None:
    assert decide(f"list {resource}", selector="spec.nodeName=n1").allowed
    assert decide(f"watch {resource}", selector="status.phase!=Failed,spec.nodeName==n1").allowed
    assert not decide(f"list {resource}", selector="spec.nodeName=n2").allowed
    assert not decide(f"list {resource}", selector="spec.nodeName!=n1").allowed
    assert decide("deletecollection resource.k8s.io/resourceslices", selector="spec.nodeName=n1").allowed


def test_leases_of_nodes_are_their_own() -> None:
    assert decide("update coordination.k8s.io/leases n1", namespace="kube-node-lease").allowed
    assert decide("create coordination.k8s.io/leases", namespace="kube-node-lease").allowed
    assert not decide("update coordination.k8s.io/leases n2", namespace="kube-node-lease").allowed
    assert not decide("list coordination.k8s.io/leases", namespace="kube-node-lease").allowed


def test_who_is_no_node_gets_no_opinion() -> None:
    for user in (User("alice"), User("system:node:n1"), User("n1", groups=("system:nodes",))):
        assert decide("get core/nodes n1", user=user) == NO_OPINION
    nameless = User("system:node:", groups=("system:nodes",))
    assert decide("get core/nodes n1", user=nameless).reason == 'unknown node for user "system:node:"'


def test_what_belongs_to_a_node_changes_with_its_pods() -> None:
    found = NodeGraph()
    shared = pod(imagePullSecrets=[{"name": "s"}])
    found.apply("pods", "default", "a", shared)
    found.apply("pods", "default", "b", shared)
    assert found.belongs("secrets", "default", "s", "n1")
    found.apply("pods", "default", "a", None)
    assert found.belongs("secrets", "default", "s", "n1")
    found.apply("pods", "default", "b", pod("n2", imagePullSecrets=[{"name": "s"}]))
    assert not found.belongs("secrets", "default", "s", "n1")
    assert found.belongs("secrets", "default", "s", "n2")
    found.apply("pods", "default", "b", None)
    assert not found.belongs("secrets", "default", "s", "n2")
    assert found._targets == {}
