"""What of a cluster can be applied again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.advice.reapplying import Choice, LeftOut, export, reapplicable, why_not

Object = dict[str, Any]


def made(kind: str, name: str = "x", api_version: str = "v1", namespace: str = "team", **parts: Any) -> Object:
    metadata = {"name": name, "namespace": namespace, "uid": "1", "resourceVersion": "7", **parts.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}


@pytest.mark.parametrize(
    ("object_", "why"),
    [
        (made("Pod", metadata={"ownerReferences": [{**OWNER, "controller": True}]}), LeftOut.OWNED),
        (made("Pod", metadata={"annotations": {"kubernetes.io/config.mirror": "h"}}), LeftOut.OWNED),
        (
            made(
                "ResourceClaim",
                api_version="resource.k8s.io/v1",
                metadata={"annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}},
            ),
            LeftOut.OWNED,
        ),
        (made("Pod", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), LeftOut.ENDING),
        (made("Pod", status={"phase": "Succeeded"}), LeftOut.FINISHED),
        (
            made("Job", api_version="batch/v1", status={"conditions": [{"type": "Complete", "status": "True"}]}),
            LeftOut.FINISHED,
        ),
        (made("Node"), LeftOut.OF_NODES),
        (made("ResourceSlice", api_version="resource.k8s.io/v1beta1"), LeftOut.OF_NODES),
        (made("EndpointSlice", api_version="discovery.k8s.io/v1"), LeftOut.TRANSIENT),
        (made("Service", "kubernetes", namespace="default"), LeftOut.OF_CLUSTER),
        (made("Secret", type="kubernetes.io/service-account-token"), LeftOut.OF_CLUSTER),
        (made("Secret", type="Opaque"), LeftOut.SECRET),
        (made("ConfigMap", "kube-root-ca.crt"), LeftOut.OF_CLUSTER),
        (made("ConfigMap", "mine", namespace="kube-system"), LeftOut.SYSTEM),
        (
            made(
                "ClusterRole",
                "view",
                api_version="rbac.authorization.k8s.io/v1",
                metadata={"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
            ),
            LeftOut.OF_CLUSTER,
        ),
        (
            made("PersistentVolume", metadata={"annotations": {"pv.kubernetes.io/provisioned-by": "p"}}),
            LeftOut.PROVISIONED,
        ),
        (
            made(
                "ValidatingWebhookConfiguration",
                api_version="admissionregistration.k8s.io/v1",
                webhooks=[{"clientConfig": {"url": "https://127.0.0.1:9443/validate"}}],
            ),
            LeftOut.ADDRESS,
        ),
        (made("Pod", status={"phase": "Running"}), None),
        (made("Pod", metadata={"ownerReferences": [OWNER]}), None),
        (made("ServiceAccount", "mine"), None),
    ],
)
def test_what_a_cluster_makes_itself_is_left_out(object_: Object, why: LeftOut | None) -> None:
    assert why_not(object_, Choice()) is why


def test_what_is_asked_for_is_kept() -> None:
    every = Choice(system=True, finished=True, secrets=True)
    for object_ in (
        made("Pod", status={"phase": "Failed"}),
        made("Secret", type="Opaque"),
        made("ConfigMap", namespace="kube-system"),
    ):
        assert why_not(object_, every) is None


def test_a_pod_is_as_it_was_written() -> None:
    token = {"name": "kube-api-access-abcde", "projected": {"sources": []}}
    mount = {"name": "kube-api-access-abcde", "mountPath": "/var/run/secrets"}
    own = {"name": "data", "mountPath": "/data"}
    pod = made(
        "Pod",
        metadata={
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "yes"},
            "finalizers": ["batch.kubernetes.io/job-tracking", "example.com/mine"],
            "managedFields": [],
            "generateName": "x-",
        },
        spec={
            "nodeName": "n1",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "containers": [{"name": "main", "volumeMounts": [own, mount]}, {"name": "side", "volumeMounts": [mount]}],
            "volumes": [{"name": "data", "emptyDir": {}}, token],
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{name}",
                    "effect": "NoExecute",
                    "operator": "Exists",
                    "tolerationSeconds": 300,
                }
                for name in ("not-ready", "unreachable")
            ]
            + [{"key": "gpu", "operator": "Exists"}],
        },
        status={"phase": "Running"},
    )
    assert reapplicable(pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "x",
            "namespace": "team",
            "annotations": {"mine": "yes"},
            "finalizers": ["example.com/mine"],
        },
        "spec": {
            "serviceAccountName": "default",
            "containers": [{"name": "main", "volumeMounts": [own]}, {"name": "side"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
        },
    }


@pytest.mark.parametrize(
    ("object_", "left"),
    [
        (
            made(
                "Service",
                spec={
                    "clusterIP": "10.0.0.1",
                    "clusterIPs": ["10.0.0.1"],
                    "ipFamilies": ["IPv4"],
                    "ports": [{"port": 80, "nodePort": 30000}],
                },
            ),
            {"spec": {"ports": [{"port": 80}]}},
        ),
        (made("Service", spec={"clusterIP": "None", "clusterIPs": ["None"]}), {"spec": {"clusterIP": "None"}}),
        (
            made("PersistentVolumeClaim", spec={"volumeName": "pvc-1", "accessModes": ["ReadWriteOnce"]}),
            {"spec": {"accessModes": ["ReadWriteOnce"]}},
        ),
        (
            made("PersistentVolume", spec={"claimRef": {"name": "c", "uid": "u", "resourceVersion": "3"}}),
            {"spec": {"claimRef": {"name": "c"}}},
        ),
        (made("Namespace", spec={"finalizers": ["kubernetes"]}), {}),
        (made("ServiceAccount", secrets=[{"name": "token"}]), {}),
        (
            made(
                "ClusterRole",
                api_version="rbac.authorization.k8s.io/v1",
                aggregationRule={"clusterRoleSelectors": []},
                rules=[{"verbs": ["get"]}],
            ),
            {"aggregationRule": {"clusterRoleSelectors": []}, "rules": []},
        ),
        (
            made(
                "Job",
                api_version="batch/v1",
                spec={
                    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                    "template": {
                        "metadata": {"labels": {"job-name": "x", "controller-uid": "u", "app": "a"}},
                        "spec": {"nodeName": "meant"},
                    },
                },
            ),
            {"spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": {"nodeName": "meant"}}}},
        ),
    ],
)
def test_addresses_and_names_of_this_cluster_are_taken_out(object_: Object, left: Object) -> None:
    found = reapplicable(object_)
    assert {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "metadata")} == left


def test_what_others_need_comes_first() -> None:
    kinds = (
        ("Pod", "v1"),
        ("Thing", "example.com/v1"),
        ("ConfigMap", "v1"),
        ("Deployment", "apps/v1"),
        ("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"),
        ("Namespace", "v1"),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
        ("ResourceClaim", "resource.k8s.io/v1"),
        ("DeviceClass", "resource.k8s.io/v1"),
    )
    found = export([made(kind, api_version=version) for kind, version in kinds])
    assert [each["kind"] for each in found.objects] == [
        "CustomResourceDefinition",
        "Namespace",
        "DeviceClass",
        "ConfigMap",
        "ResourceClaim",
        "Thing",
        "Deployment",
        "Pod",
        "ValidatingAdmissionPolicy",
    ]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.sampled_from(["", "x", "None", "kubernetes"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "controller"),
                    *("spec", "status", "conditions", "type", "phase", "template", "metadata", "claimRef", "ports"),
                    *("volumes", "containers", "volumeMounts", "tolerations", "key", "projected", "webhooks", "url"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KINDS = [
    *(("v1", kind) for kind in ("Pod", "Service", "Namespace", "ServiceAccount", "PersistentVolume", "Secret")),
    ("batch/v1", "Job"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
]


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(["spec", "status", "webhooks"]), VALUES), VALUES)
def test_no_object_is_more_than_an_object(kind: tuple[str, str], parts: Object, metadata: Any) -> None:
    object_ = {**parts, "apiVersion": kind[0], "kind": kind[1], "metadata": metadata}
    found = export([object_])
    for each in found.objects:
        assert "status" not in each
        assert reapplicable(each) == each
