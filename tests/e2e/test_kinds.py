"""One object of every built-in kind goes through kubectl: apply, diff, get, describe, server-side apply, delete."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from e2e.kubectl import Kubectl

pytestmark = pytest.mark.slow

_POD = "{containers: [{name: c, image: 'busybox:1'}]}"
_TEMPLATE = f"{{metadata: {{labels: {{a: b}}}}, spec: {_POD}}}"
_JOB_TEMPLATE = "{spec: {restartPolicy: Never, containers: [{name: c, image: 'busybox:1'}]}}"
_SELECTOR = "{matchLabels: {a: b}}"
_CLAIM = "{devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}"
_RULES = "[{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [unicorns]}]"
_WEBHOOK = (
    "[{name: w.example.com, clientConfig: {url: 'https://127.0.0.1:1/'}, admissionReviewVersions: [v1],"
    f" sideEffects: None, failurePolicy: Ignore, rules: {_RULES}}}]"
)

# Kind and version to what is in it. Namespaced kinds first, then those of the cluster.
_NAMESPACED = {
    "v1 ConfigMap": "data: {a: b}",
    "v1 Secret": "stringData: {a: b}",
    "v1 Pod": f"spec: {_POD}",
    "v1 Service": "spec: {ports: [{port: 80}], selector: {a: b}}",
    "v1 ServiceAccount": "",
    "v1 Endpoints": "subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]",
    "v1 LimitRange": "spec: {limits: [{type: Container, default: {cpu: 1}}]}",
    "v1 ResourceQuota": "spec: {hard: {count/resourceclaims.resource.k8s.io: 5}}",
    "v1 PersistentVolumeClaim": "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
    "v1 PodTemplate": f"template: {_TEMPLATE}",
    "v1 ReplicationController": f"spec: {{replicas: 0, selector: {{a: b}}, template: {_TEMPLATE}}}",
    "apps/v1 Deployment": f"spec: {{selector: {_SELECTOR}, template: {_TEMPLATE}}}",
    "apps/v1 ReplicaSet": f"spec: {{selector: {_SELECTOR}, template: {_TEMPLATE}}}",
    "apps/v1 StatefulSet": f"spec: {{serviceName: s, selector: {_SELECTOR}, template: {_TEMPLATE}}}",
    "apps/v1 DaemonSet": f"spec: {{selector: {_SELECTOR}, template: {_TEMPLATE}}}",
    "apps/v1 ControllerRevision": "revision: 1\ndata: {a: b}",
    "batch/v1 Job": f"spec: {{template: {_JOB_TEMPLATE}}}",
    "batch/v1 CronJob": f"spec: {{schedule: '0 0 * * *', jobTemplate: {{spec: {{template: {_JOB_TEMPLATE}}}}}}}",
    "autoscaling/v2 HorizontalPodAutoscaler": (
        "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d},"
        " metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}"
    ),
    "policy/v1 PodDisruptionBudget": f"spec: {{maxUnavailable: 1, selector: {_SELECTOR}}}",
    "networking.k8s.io/v1 Ingress": "spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}",
    "networking.k8s.io/v1 NetworkPolicy": "spec: {podSelector: {}, ingress: [{}]}",
    "rbac.authorization.k8s.io/v1 Role": "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]",
    "rbac.authorization.k8s.io/v1 RoleBinding": (
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\n"
        "subjects: [{kind: User, name: u, apiGroup: rbac.authorization.k8s.io}]"
    ),
    "coordination.k8s.io/v1 Lease": "spec: {holderIdentity: x, leaseDurationSeconds: 10}",
    "discovery.k8s.io/v1 EndpointSlice": "addressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\nports: [{port: 80}]",
    "storage.k8s.io/v1 CSIStorageCapacity": "storageClassName: s\ncapacity: 1Gi",
    "resource.k8s.io/v1 ResourceClaim": f"spec: {_CLAIM}",
    "resource.k8s.io/v1 ResourceClaimTemplate": f"spec: {{spec: {_CLAIM}}}",
    "events.k8s.io/v1 Event": (
        "regarding: {kind: Pod, apiVersion: v1, name: p, namespace: NAMESPACE}\nreason: R\naction: A\nnote: text\ntype: Normal\n"
        "eventTime: '2026-01-01T00:00:00.000000Z'\nreportingController: example.com/c\nreportingInstance: i"
    ),
}
_CLUSTER = {
    "v1 Namespace": "",
    "v1 Node": "spec: {podCIDR: 10.2.0.0/24}",
    "v1 PersistentVolume": "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}",
    "storage.k8s.io/v1 StorageClass": "provisioner: p.example.com",
    "storage.k8s.io/v1 CSIDriver": "spec: {attachRequired: false}",
    "storage.k8s.io/v1 CSINode": "spec: {drivers: [{name: d.example.com, nodeID: node}]}",
    "storage.k8s.io/v1 VolumeAttachment": (
        "spec: {attacher: a.example.com, nodeName: node, source: {persistentVolumeName: pv}}"
    ),
    "storage.k8s.io/v1 VolumeAttributesClass": "driverName: d.example.com\nparameters: {a: b}",
    "networking.k8s.io/v1 IngressClass": "spec: {controller: example.com/c}",
    "node.k8s.io/v1 RuntimeClass": "handler: runc",
    "scheduling.k8s.io/v1 PriorityClass": "value: 5",
    "rbac.authorization.k8s.io/v1 ClusterRole": "rules: [{nonResourceURLs: [/x], verbs: [get]}]",
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding": (
        "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}"
    ),
    "resource.k8s.io/v1 DeviceClass": "spec: {selectors: [{cel: {expression: 'true'}}]}",
    "resource.k8s.io/v1 ResourceSlice": (
        "spec: {driver: d.example.com, allNodes: true, pool: {name: p, generation: 1, resourceSliceCount: 1},"
        " devices: [{name: d0, attributes: {version: {version: 1.2.3}}, capacity: {memory: {value: 1Gi}}}]}"
    ),
    "resource.k8s.io/v1 DeviceTaintRule": (
        "spec: {deviceSelector: {driver: d.example.com}, taint: {key: a, effect: NoSchedule}}"
    ),
    "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration": f"webhooks: {_WEBHOOK}",
    "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration": f"webhooks: {_WEBHOOK}",
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": (
        f"spec: {{matchConstraints: {{resourceRules: {_RULES}}}, validations: [{{expression: 'true'}}]}}"
    ),
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": (
        "spec: {policyName: none, validationActions: [Deny]}"
    ),
    "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration": "spec: {type: Limited, limited: {limitResponse: {type: Reject}}}",
    "flowcontrol.apiserver.k8s.io/v1 FlowSchema": "spec: {priorityLevelConfiguration: {name: exempt}}",
}


def _manifests(kubectl: Kubectl) -> str:
    documents: list[str] = []
    for kind, content in [*_NAMESPACED.items(), *_CLUSTER.items()]:
        version, _, name = kind.partition(" ")
        object_name = f"{kubectl.namespace}-{name.lower()}"
        filled = content.replace("NAMESPACE", kubectl.namespace)
        documents.append(f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: {object_name}}}\n{filled}\n")
    return "---\n".join(documents)


def _items(kubectl: Kubectl, manifests: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(kubectl("get", "-f", "-", "-o", "yaml", stdin=manifests))["items"]
    return found


def test_every_kind(kubectl: Kubectl) -> None:
    manifests = _manifests(kubectl)
    kinds = manifests.count("\nkind: ")
    assert len(re.findall(r" created$", kubectl.apply(manifests), re.MULTILINE)) == kinds
    assert kubectl("diff", "-f", "-", stdin=manifests) == ""
    listed = _items(kubectl, manifests)
    assert all(item["metadata"]["uid"] and item["metadata"]["creationTimestamp"] for item in listed)
    assert len({item["metadata"]["uid"] for item in listed}) == kinds
    # kubectl says "configured" of lists that got defaults, as it does with any server; nothing is written.
    assert len(re.findall(r" (unchanged|configured)$", kubectl.apply(manifests), re.MULTILINE)) == kinds
    assert _items(kubectl, manifests) == listed
    shown = kubectl("get", "-f", "-", "-o", "wide", stdin=manifests)
    assert shown.count(f"{kubectl.namespace}-") >= kinds
    # Of this kind kubectl 1.33 describes only a version that servers do not offer any more.
    documents = [document for document in manifests.split("---\n") if "VolumeAttributesClass" not in document]
    described = kubectl("describe", "-f", "-", stdin="---\n".join(documents))
    assert described.count(f"{kubectl.namespace}-") >= len(documents)
    assert kubectl("label", "-f", "-", "walked=yes", stdin=manifests).count(" labeled") == kinds
    # Lists that belong to one manager as a whole got defaults, which is a conflict with any server.
    served = kubectl.apply(manifests, "--server-side", "--force-conflicts")
    assert served.count(" serverside-applied") == kinds
    patched = kubectl("annotate", "-f", "-", "a=b", stdin=manifests)
    assert patched.count(" annotated") == kinds
    rehearsed = kubectl("delete", "-f", "-", "--dry-run=server", stdin=manifests)
    assert rehearsed.count("(server dry run)") == kinds
    gone = kubectl("delete", "-f", "-", "--wait=false", stdin=manifests)
    assert gone.count(" deleted") == kinds


def test_policies_guard_what_they_match(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    policy = f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}
  validations: [{{expression: "object.metadata.name != 'forbidden'", message: that name is taken}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}
"""
    kubectl.apply(policy)
    kubectl("create", "cm", "allowed")
    refused = kubectl.fails("create", "cm", "forbidden")
    assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: that name is taken" in refused
    kubectl("delete", "validatingadmissionpolicybinding", name)
    kubectl("delete", "validatingadmissionpolicy", name)
    kubectl("create", "cm", "forbidden")


def test_quotas_and_limits(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=count/configmaps=2,pods=1")
    kubectl("patch", "quota", "q", "--subresource=status", "--type=merge", "-p", '{"status":{"hard":{"pods":"1"}}}')
    kubectl("run", "one", "--image=busybox")
    refused = kubectl.fails("run", "two", "--image=busybox")
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refused
    limits = (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec: {limits: [{type: Container, max: {cpu: 1}}]}\n"
    )
    kubectl.apply(limits)
    kubectl("delete", "quota", "q")
    kubectl("run", "three", "--image=busybox")
    assert kubectl.json("get", "pod", "three")["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    too_much = '{"spec":{"containers":[{"name":"four","image":"x","resources":{"limits":{"cpu":"2"}}}]}}'
    refused = kubectl.fails("run", "four", "--image=x", f"--overrides={too_much}")
    assert "maximum cpu usage per Container is 1, but limit is 2" in refused


def test_priorities_and_service_accounts_of_pods(kubectl: Kubectl) -> None:
    kubectl("create", "priorityclass", name := kubectl.namespace, "--value=1234")
    pod = f'{{"spec":{{"priorityClassName":"{name}"}}}}'
    kubectl("run", "p", "--image=busybox", f"--overrides={pod}")
    spec = kubectl.json("get", "pod", "p")["spec"]
    assert (spec["priority"], spec["serviceAccountName"]) == (1234, "default")
    refused = kubectl.fails("run", "q", "--image=busybox", '--overrides={"spec":{"priorityClassName":"none"}}')
    assert "no PriorityClass with name none was found" in refused
    refused = kubectl.fails("run", "q", "--image=busybox", '--overrides={"spec":{"serviceAccountName":"none"}}')
    assert "error looking up service account" in refused
    added = kubectl("debug", "p", "--image=busybox", "--container=extra", "--attach=false", "--quiet")
    assert "error" not in added
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.spec.ephemeralContainers[*].name}") == "extra"
