"""One object of every built-in kind that a stock kube-apiserver serves, as YAML."""

from __future__ import annotations

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

# Kind and version to what is in it.
NAMESPACED = {
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
CLUSTER = {
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
