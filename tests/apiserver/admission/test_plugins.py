"""What the built-in plugins fill in and refuse, in upstream's words."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from allot.apiserver.admission.attributes import Operation
from allot.apiserver.admission.defaults import ProtectionFinalizers
from allot.apiserver.errors import StatusError
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.request import User
from allot.controllers.table import select
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates

NODE = User("system:node:n1", groups=("system:nodes",))


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": containers, **spec}}


def limited(
    requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, name: str = "c"
) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {"name": name, "resources": resources}


async def refusal(awaited: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await awaited
    return caught.value


# --- namespaces ---


async def test_nothing_is_created_in_a_missing_namespace(world: Any) -> None:
    error = await refusal(world.create("", "configmaps", {"metadata": {"name": "c", "namespace": "nowhere"}}))
    assert (error.code, error.message) == (404, 'namespaces "nowhere" not found')


async def test_nothing_is_created_in_a_namespace_that_goes_away(world: Any) -> None:
    world.put("", "namespaces", {"metadata": {"name": "old"}, "status": {"phase": "Terminating"}})
    error = await refusal(world.create("", "configmaps", {"metadata": {"name": "c", "namespace": "old"}}))
    assert error.code == 403
    assert error.message == (
        'configmaps "c" is forbidden: unable to create new content in namespace old because it is being terminated'
    )
    assert error.details is not None
    assert error.details["causes"][0]["reason"] == "NamespaceTerminating"


async def test_the_default_namespace_stays(world: Any) -> None:
    error = await refusal(world.delete("", "namespaces", "", "default"))
    assert error.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


# --- service accounts ---


async def test_a_pod_gets_the_default_account_and_its_token(world: Any) -> None:
    spec = (await world.create("", "pods", pod()))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    name = spec["volumes"][0]["name"]
    assert name.startswith("kube-api-access-") and len(name) == len("kube-api-access-") + 5
    assert [next(iter(source)) for source in spec["volumes"][0]["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": name, "readOnly": True}
    ]


async def test_a_pod_that_wants_no_token_gets_none(world: Any) -> None:
    assert "volumes" not in (await world.create("", "pods", pod(automountServiceAccountToken=False)))["spec"]


async def test_the_account_has_to_exist(world: Any) -> None:
    error = await refusal(world.create("", "pods", pod(serviceAccountName="gone")))
    assert error.message == (
        'pods "p" is forbidden: error looking up service account default/gone: serviceaccount "gone" not found'
    )


async def test_the_default_account_is_waited_for_but_not_forever(world: Any) -> None:
    del world.objects["", "serviceaccounts", "default", "default"]
    error = await refusal(world.create("", "pods", pod()))
    assert "error looking up service account default/default" in error.message


async def test_pull_secrets_come_from_the_account(world: Any) -> None:
    account = {"metadata": {"name": "a", "namespace": "default"}, "imagePullSecrets": [{"name": "registry"}]}
    world.put("", "serviceaccounts", account)
    spec = (await world.create("", "pods", pod(serviceAccountName="a")))["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


async def test_an_account_may_insist_on_the_secrets_it_lists(world: Any) -> None:
    enforced = {"kubernetes.io/enforce-mountable-secrets": "true"}
    world.put("", "serviceaccounts", {"metadata": {"name": "a", "namespace": "default", "annotations": enforced}})
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    error = await refusal(world.create("", "pods", pod(serviceAccountName="a", volumes=volumes)))
    assert error.message.endswith(
        'volume with secret.secretName="s" is not allowed because service account a does not reference that secret'
    )


# --- priority ---


def priority_class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **more}


async def test_without_classes_the_priority_is_zero(world: Any) -> None:
    spec = (await world.create("", "pods", pod()))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


async def test_the_class_becomes_a_number(world: Any) -> None:
    world.put("scheduling.k8s.io", "priorityclasses", priority_class("high", 1000, preemptionPolicy="Never"))
    spec = (await world.create("", "pods", pod(priorityClassName="high")))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_an_unknown_class_is_refused(world: Any) -> None:
    error = await refusal(world.create("", "pods", pod(priorityClassName="x")))
    assert error.message == 'pods "p" is forbidden: no PriorityClass with name x was found'


async def test_a_given_number_has_to_be_the_right_one(world: Any) -> None:
    error = await refusal(world.create("", "pods", pod(priority=7)))
    assert "the integer value of priority (7) must not be provided in pod spec" in error.message


async def test_an_update_keeps_the_resolved_priority(world: Any) -> None:
    await world.create("", "pods", pod())
    assert (await world.update("", "pods", pod()))["spec"]["priority"] == 0


async def test_pod_groups_are_told_in_their_own_words(world: Any) -> None:
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"priority": 5}}
    error = await refusal(world.create("scheduling.k8s.io", "podgroups", group))
    assert error.message.endswith(
        "priority set in the pod group (5) must match the priority computed (0) "
        "based on the priority class set in the spec"
    )


@pytest.mark.parametrize("gates", [DEFAULT_GATES, ALL_GATES])
def test_a_pod_group_is_protected_as_long_as_its_controller_runs(gates: FeatureGates) -> None:
    groups = next(row for row in builtin_resources() if row.plural == "podgroups")
    is_protected = ProtectionFinalizers(gates).handles(groups, "", Operation.CREATE)
    assert is_protected == ("podgroup-protection-controller" in {row.name for row in select(["*"], gates)})


async def test_only_one_class_is_the_default(world: Any) -> None:
    await world.create("scheduling.k8s.io", "priorityclasses", priority_class("a", 1, globalDefault=True))
    error = await refusal(
        world.create("scheduling.k8s.io", "priorityclasses", priority_class("b", 2, globalDefault=True))
    )
    assert error.message.endswith("PriorityClass a is already marked as default. Only one default can exist")
    await world.update("scheduling.k8s.io", "priorityclasses", priority_class("a", 1, globalDefault=True))


# --- limit ranges ---


def limit_range(**limit: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l", "namespace": "default"}, "spec": {"limits": [limit]}}


async def test_a_limit_range_fills_in(world: Any) -> None:
    world.put("", "limitranges", limit_range(type="Container", default={"cpu": "1"}, defaultRequest={"cpu": "500m"}))
    made = await world.create("", "pods", pod())
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    )


@pytest.mark.parametrize(
    ("limit", "container", "told"),
    [
        ({"type": "Container", "max": {"cpu": "1"}}, limited(limits={"cpu": "2"}), "maximum cpu usage per Container is 1, but limit is 2"),
        ({"type": "Container", "max": {"cpu": "1"}}, limited(), "maximum cpu usage per Container is 1.  No limit is specified"),
        ({"type": "Container", "min": {"memory": "1Gi"}}, limited({"memory": "1Mi"}), "minimum memory usage per Container is 1Gi, but request is 1Mi"),
        ({"type": "Pod", "min": {"cpu": "1"}}, limited(), "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}, limited({"cpu": "1"}, {"cpu": "3"}), "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
    ],
)  # fmt: skip
async def test_a_limit_range_bounds(world: Any, limit: dict[str, Any], container: dict[str, Any], told: str) -> None:
    world.put("", "limitranges", limit_range(**limit))
    error = await refusal(world.create("", "pods", pod(containers=[container])))
    assert error.message == f'pods "p" is forbidden: {told}'


async def test_several_broken_limits_are_told_together(world: Any) -> None:
    world.put("", "limitranges", limit_range(type="Container", max={"cpu": "1", "memory": "1"}))
    error = await refusal(world.create("", "pods", pod()))
    assert error.message.endswith(
        "[maximum cpu usage per Container is 1.  No limit is specified, "
        "maximum memory usage per Container is 1.  No limit is specified]"
    )


# --- small ones ---


async def test_pods_tolerate_lost_nodes_for_a_while(world: Any) -> None:
    given = [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    tolerations = (await world.create("", "pods", pod(tolerations=given)))["spec"]["tolerations"]
    added = {
        "effect": "NoExecute",
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "tolerationSeconds": 300,
    }
    assert tolerations == [*given, added]


async def test_new_nodes_are_tainted(world: Any) -> None:
    node = await world.create("", "nodes", {"metadata": {"name": "n"}, "spec": {}})
    assert node["spec"]["taints"] == [{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}]


async def test_volume_claims_get_the_default_class_and_a_finalizer(world: Any) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    for name, made in (("b", "2024-01-01T00:00:00Z"), ("a", "2024-01-01T00:00:00Z"), ("old", "2020-01-01T00:00:00Z")):
        meta = {"name": name, "annotations": default, "creationTimestamp": made}
        world.put("storage.k8s.io", "storageclasses", {"metadata": meta})
    claim = await world.create(
        "", "persistentvolumeclaims", {"metadata": {"name": "c", "namespace": "default"}, "spec": {}}
    )
    assert claim["spec"]["storageClassName"] == "a"
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


@pytest.mark.parametrize(
    ("class_", "phase", "why"),
    [
        ({"allowVolumeExpansion": True}, "Bound", ""),
        ({"allowVolumeExpansion": True}, "Pending", "Only bound persistent volume claims can be expanded"),
        ({"allowVolumeExpansion": False}, "Bound", "the storageclass that provisions the pvc must support resize"),
        ({}, "Bound", "the storageclass that provisions the pvc must support resize"),
        (None, "Bound", "the storageclass that provisions the pvc must support resize"),
    ],
)
async def test_volumes_grow_where_their_class_lets_them(world: Any, class_: Any, phase: str, why: str) -> None:
    if class_ is not None:
        world.put("storage.k8s.io", "storageclasses", {"metadata": {"name": "s"}, **class_})

    def claim(size: str) -> dict[str, Any]:
        spec = {"storageClassName": "s", "resources": {"requests": {"storage": size}}}
        return {"metadata": {"name": "c", "namespace": "default"}, "spec": spec, "status": {"phase": phase}}

    world.put("", "persistentvolumeclaims", claim("1Gi"))
    await world.update("", "persistentvolumeclaims", claim("1024Mi"))
    if not why:
        await world.update("", "persistentvolumeclaims", claim("2Gi"))
        return
    error = await refusal(world.update("", "persistentvolumeclaims", claim("2Gi")))
    assert error.code == 403 and error.message.endswith(why)


async def test_a_runtime_class_adds_its_overhead(world: Any) -> None:
    runtime = {
        "metadata": {"name": "r"},
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": {"nodeSelector": {"a": "b"}},
    }
    world.put("node.k8s.io", "runtimeclasses", runtime)
    spec = (await world.create("", "pods", pod(runtimeClassName="r")))["spec"]
    assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "100m"}, {"a": "b"})
    error = await refusal(world.create("", "pods", pod("q", overhead={"cpu": "1"})))
    assert error.message.endswith("Pod Overhead set without corresponding RuntimeClass defined Overhead")
    error = await refusal(world.create("", "pods", pod("q", runtimeClassName="x")))
    assert error.message.endswith('pod rejected: RuntimeClass "x" not found')


# --- nodes ---


def slice_of(node: str) -> dict[str, Any]:
    return {"metadata": {"name": f"slice-{node}"}, "spec": {"nodeName": node}}


async def test_a_node_makes_slices_of_its_own_only(world: Any) -> None:
    await world.create("resource.k8s.io", "resourceslices", slice_of("n1"), user=NODE)
    error = await refusal(world.create("resource.k8s.io", "resourceslices", slice_of("n2"), user=NODE))
    assert error.message == (
        'resourceslices.resource.k8s.io "slice-n2" is forbidden: '
        "can only create ResourceSlice with the same NodeName as the requesting node"
    )


async def test_a_node_deletes_slices_of_its_own_only(world: Any) -> None:
    world.put("resource.k8s.io", "resourceslices", slice_of("n2"))
    error = await refusal(world.delete("resource.k8s.io", "resourceslices", "", "slice-n2", user=NODE))
    assert error.message.endswith("can only delete ResourceSlice with the same NodeName as the requesting node")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("resourceClaimStatuses", [{"name": "a"}], "resource claim statues"),
        ("extendedResourceClaimStatus", {"resourceClaimName": "c"}, "extended resource claim status"),
        (
            "nodeAllocatableResourceClaimStatuses",
            [{"resourceClaimName": "c"}],
            "node allocatable resource claim statuses",
        ),
    ],
)
async def test_a_node_leaves_claim_statuses_alone(world: Any, name: str, value: Any, told: str) -> None:
    world.put("", "pods", pod(nodeName="n1"))
    changed = {**pod(nodeName="n1"), "status": {name: value}}
    error = await refusal(world.update("", "pods", changed, user=NODE, subresource="status"))
    assert error.message == f'pods "p" is forbidden: node "n1" cannot update {told}'


async def test_a_node_writes_the_status_of_its_own_pods(world: Any) -> None:
    world.put("", "pods", pod(nodeName="n1"))
    await world.update(
        "", "pods", {**pod(nodeName="n1"), "status": {"phase": "Running"}}, user=NODE, subresource="status"
    )
    world.put("", "pods", pod("q", nodeName="n2"))
    error = await refusal(world.update("", "pods", pod("q", nodeName="n2"), user=NODE, subresource="status"))
    assert error.message.endswith('node "n1" can only update pod status for pods with spec.nodeName set to itself')


async def test_mirror_pods_refer_to_nothing(world: Any) -> None:
    world.put("", "nodes", {"metadata": {"name": "n1", "uid": "u"}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
    mirror = pod(nodeName="n1")
    mirror["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    await world.create("", "pods", mirror, user=NODE)
    mirror["metadata"]["name"] = "q"
    mirror["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": "c"}]
    error = await refusal(world.create("", "pods", mirror, user=NODE))
    assert error.message == 'pods "q" is forbidden: node "n1" can not create pods that reference resourceclaims'
    error = await refusal(world.create("", "pods", pod("r", nodeName="n1"), user=NODE))
    assert 'node "n1" can only create mirror pods' in error.message


async def test_a_node_does_not_untaint_or_relabel_itself(world: Any) -> None:
    node = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    world.put("", "nodes", node)
    error = await refusal(world.update("", "nodes", {**node, "spec": {}}, user=NODE))
    assert error.message.endswith('node "n1" is not allowed to modify taints')
    labels = {
        "node-restriction.kubernetes.io/a": "b",
        "kubernetes.io/os": "linux",
        "example.com/x": "y",
        "foo.k8s.io/z": "",
    }
    error = await refusal(world.update("", "nodes", {**node, "metadata": {"name": "n1", "labels": labels}}, user=NODE))
    assert error.message.endswith("is not allowed to modify labels: foo.k8s.io/z, node-restriction.kubernetes.io/a")
    error = await refusal(world.create("", "nodes", {"metadata": {"name": "n2"}}, user=NODE))
    assert error.message.endswith('node "n1" is not allowed to modify node "n2"')


async def test_a_node_has_its_own_lease(world: Any) -> None:
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    world.put("", "namespaces", {"metadata": {"name": "kube-node-lease"}})
    await world.create("coordination.k8s.io", "leases", lease, user=NODE)
    lease["metadata"]["name"] = "n2"
    error = await refusal(world.create("coordination.k8s.io", "leases", lease, user=NODE))
    assert error.message.endswith("can only access node lease with the same name as the requesting node")


# --- certificates ---


def signing_request(name: str, organization: str) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)]
    )
    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


async def test_nobody_asks_for_a_certificate_of_the_masters(world: Any) -> None:
    spec = {"signerName": "kubernetes.io/kube-apiserver-client", "request": signing_request("me", "system:masters")}
    made = {"metadata": {"name": "c"}, "spec": spec}
    error = await refusal(world.create("certificates.k8s.io", "certificatesigningrequests", made))
    assert error.message.endswith("signer with system:masters group is not allowed")


async def test_a_node_asks_for_its_own_certificate_only(world: Any) -> None:
    spec = {"signerName": "kubernetes.io/kubelet-serving", "request": signing_request("system:node:n2", "system:nodes")}
    made = {"metadata": {"name": "c"}, "spec": spec}
    error = await refusal(world.create("certificates.k8s.io", "certificatesigningrequests", made, user=NODE))
    assert error.message.endswith("can only create a node CSR with CN=system:node:n1")


async def test_a_node_asks_a_signer_for_its_pods_that_they_name_or_that_it_has_a_right_to(world: Any) -> None:
    world.put("", "nodes", {"metadata": {"name": "n1", "uid": "n"}})
    world.put("", "serviceaccounts", {"metadata": {"name": "a", "namespace": "default", "uid": "a"}})
    runs = pod(nodeName="n1", serviceAccountName="a")
    runs["metadata"]["uid"] = "p"
    world.put("", "pods", runs)
    asked = {
        "signerName": "example.com/s",
        "podName": "p",
        "podUID": "p",
        "nodeName": "n1",
        "nodeUID": "n",
        "serviceAccountName": "a",
        "serviceAccountUID": "a",
    }
    made = {"metadata": {"name": "c", "namespace": "default"}, "spec": asked}
    error = await refusal(world.create("certificates.k8s.io", "podcertificaterequests", made, user=NODE))
    assert error.message.endswith(
        'pod "default/p" does not mount a podCertificate projected volume for signer "example.com/s"'
    )
    world.may.add(("request-serviceaccounts-podcertificate-signer", "example.com:s", "a"))
    await world.create("certificates.k8s.io", "podcertificaterequests", made, user=NODE)
    runs["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    world.put("", "pods", runs)
    error = await refusal(world.create("certificates.k8s.io", "podcertificaterequests", made, user=NODE))
    assert error.message.endswith('pod "default/p" is a mirror pod')
    assert (await refusal(world.update("certificates.k8s.io", "podcertificaterequests", made, user=NODE))).code == 403


async def test_approving_needs_a_right_to_the_signer(world: Any) -> None:
    made = {"metadata": {"name": "c"}, "spec": {"signerName": "example.com/s"}}
    world.put("certificates.k8s.io", "certificatesigningrequests", made)
    error = await refusal(
        world.update("certificates.k8s.io", "certificatesigningrequests", made, subresource="approval")
    )
    assert error.message.endswith('user not permitted to approve requests with signerName "example.com/s"')
    world.may.add(("approve", "signers", "example.com/*"))
    await world.update("certificates.k8s.io", "certificatesigningrequests", made, subresource="approval")


@pytest.mark.parametrize("spec", [None, [], "x", {"containers": 5}, {"containers": ["x", None]}, {"tolerations": "x"}])
async def test_malformed_pods_are_left_to_validation(world: Any, spec: Any) -> None:
    made = {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    try:
        await world.create("", "pods", made)
    except StatusError as error:
        assert error.code == 403
