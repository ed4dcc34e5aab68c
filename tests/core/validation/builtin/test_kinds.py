"""The other built-in kinds: defaults that clients see, and the rules that people meet most."""

from __future__ import annotations

import pytest

from allot.core.validation.builtin.registry import rules_for
from core.validation.builtin.builders import Object, created, errors, update_errors, with_defaults, workload

RBAC = "rbac.authorization.k8s.io"


def named(**members: object) -> Object:
    return {"metadata": {"name": "x", "namespace": "d"}, **members}


# --- defaults ---


def test_a_deployment_gets_the_defaults_of_kubernetes() -> None:
    spec = created("apps", "Deployment", workload())["spec"]
    assert {name: value for name, value in spec.items() if name not in ("selector", "template")} == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    }
    assert "enableServiceLinks" not in spec["template"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Always"


def test_a_stateful_set_and_a_daemon_set_get_their_update_strategies() -> None:
    stateful = created("apps", "StatefulSet", workload(serviceName="s"))
    assert stateful["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"partition": 0, "maxUnavailable": 1},
    }
    assert stateful["status"] == {"availableReplicas": 0, "replicas": 0}
    daemon = created("apps", "DaemonSet", workload())["spec"]
    assert daemon["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}


def test_a_service_gets_type_ports_and_policies() -> None:
    spec = with_defaults("", "Service", named(spec={"ports": [{"port": 80}], "selector": {"a": "b"}}))["spec"]
    assert spec == {
        "internalTrafficPolicy": "Cluster",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": {"a": "b"},
        "sessionAffinity": "None",
        "type": "ClusterIP",
    }
    balanced = with_defaults("", "Service", named(spec={"ports": [{"port": 80}], "type": "LoadBalancer"}))["spec"]
    assert (balanced["allocateLoadBalancerNodePorts"], balanced["externalTrafficPolicy"]) == (True, "Cluster")


def test_a_job_selects_its_pods_by_its_uid() -> None:
    job: Object = {
        "metadata": {"name": "j", "namespace": "d", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
    }
    made = created("batch", "Job", job)
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert made["spec"]["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u",
        "job-name": "j",
    }
    assert (made["spec"]["completions"], made["spec"]["backoffLimit"], made["spec"]["suspend"]) == (1, 6, False)
    assert errors("batch", "Job", job) == []
    job["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    path = "spec.template.spec.restartPolicy"
    assert errors("batch", "Job", job) == [f'{path}: Required value: valid values: "OnFailure", "Never"']


def test_namespaces_are_born_active_with_their_name_as_label() -> None:
    made = created("", "Namespace", {"metadata": {"name": "team"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


def test_secrets_take_plain_text_and_keep_it_encoded() -> None:
    made = with_defaults("", "Secret", named(data={"a": "eA=="}, stringData={"b": "hello"}))
    assert made["data"] == {"a": "eA==", "b": "aGVsbG8="}
    assert (made["type"], "stringData" in made) == ("Opaque", False)


def test_nodes_can_use_what_they_have() -> None:
    made = with_defaults("", "Node", named(status={"capacity": {"cpu": "4000m"}}))
    assert made["status"]["allocatable"] == {"cpu": "4"}


def test_limit_ranges_fill_in_from_the_outside() -> None:
    limit = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}
    made = with_defaults("", "LimitRange", named(spec={"limits": [limit]}))["spec"]["limits"][0]
    assert (made["default"], made["defaultRequest"]) == ({"cpu": "2"}, {"cpu": "2", "memory": "1Mi"})


def test_events_always_have_their_times_and_source() -> None:
    made = with_defaults("", "Event", named(involvedObject={"kind": "Pod"}))
    assert (made["eventTime"], made["firstTimestamp"], made["source"]) == (None, None, {})


def test_an_autoscaler_watches_the_processor_unless_told_otherwise() -> None:
    spec = with_defaults("autoscaling", "HorizontalPodAutoscaler", named(spec={"maxReplicas": 3}))["spec"]
    assert spec["minReplicas"] == 1
    assert spec["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}


def test_bindings_name_the_group_of_roles_and_users() -> None:
    binding = named(roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "User", "name": "u"}])
    made = with_defaults(RBAC, "RoleBinding", binding)
    assert (made["roleRef"]["apiGroup"], made["subjects"][0]["apiGroup"]) == (RBAC, RBAC)


# --- rules ---

EXTERNAL: Object = {
    "type": "External",
    "external": {"metric": {"name": "q"}, "target": {"type": "Value", "value": "1"}},
}


def scaler(**spec: object) -> Object:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    return named(spec={"scaleTargetRef": target, "maxReplicas": 3, **spec})


PVC_SPEC: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("group", "kind", "object_", "expected"),
    [
        ("apps", "Deployment", workload(), []),
        ("apps", "Deployment", workload(replicas=-1),
         ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]),
        ("apps", "Deployment", workload(selector={"matchLabels": {"x": "y"}}),
         ['spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`']),
        ("apps", "Deployment", workload(selector={}),
         ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
        ("apps", "Deployment", workload(selector=None), ["spec.selector: Required value"]),
        ("apps", "Deployment", workload(strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}),
         ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]),
        ("apps", "Deployment", workload(strategy={"rollingUpdate": {"maxUnavailable": "200%"}}),
         ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "200%": must not be greater than 100%']),
        ("apps", "StatefulSet", workload(podManagementPolicy="Any"),
         ["spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'"]),
        ("apps", "DaemonSet", workload(updateStrategy={"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}),
         ["spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"]),
        ("", "ConfigMap", named(data={"a/b": "c"}),
         ["data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or "
          "'.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"]),
        ("", "ConfigMap", named(data={"a": "x" * (1024 * 1024 + 1)}),
         ["[]: Too long: may not be more than 1048576 bytes"]),
        ("", "Secret", named(type="kubernetes.io/tls"),
         ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ("", "Service", named(spec={}), ["spec.ports: Required value"]),
        ("", "Service", named(spec={"ports": [{"port": 80}, {"port": 81}]}),
         ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"]),
        ("", "Service", named(spec={"ports": [{"port": 80, "nodePort": 30000}]}),
         ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]),
        ("", "Service", named(spec={"ports": [{"port": 80}], "type": "Odd"}),
         ['spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '
          '"NodePort"']),
        ("", "Service", named(spec={"clusterIP": "None"}), []),
        ("", "Service", named(spec={"ports": [{"port": 1}], "clusterIP": "x"}),
         ['spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
        ("", "ResourceQuota", named(spec={"hard": {"pods": "1.5"}}),
         ['spec.hard[pods]: Invalid value: "1500m": must be an integer']),
        ("", "ResourceQuota", named(spec={"hard": {"unknown": "1"}}),
         ['spec.hard[unknown]: Invalid value: "unknown": must be a standard resource type or fully qualified',
          'spec.hard[unknown]: Invalid value: "unknown": must be a standard resource for quota']),
        ("", "ResourceQuota", named(spec={"hard": {"count/deployments.apps": "5"}}), []),
        ("", "ResourceQuota", named(spec={"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}),
         ['spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes']),
        ("", "LimitRange", named(spec={"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}),
         ['spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
          'spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1',
          'spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1']),
        ("", "Node", named(spec={"taints": [{"key": "a", "effect": "Odd"}]}),
         ['metadata.taints[0].effect: Unsupported value: "Odd": supported values: "NoExecute", "NoSchedule", '
          '"PreferNoSchedule"']),
        ("", "Event", named(involvedObject={"namespace": "other"}),
         ['involvedObject.namespace: Invalid value: "other": does not match event.namespace']),
        ("", "PersistentVolumeClaim", named(spec=PVC_SPEC), []),
        ("", "PersistentVolumeClaim", named(spec={}),
         ["spec.accessModes: Required value: at least 1 access mode is required",
          "spec.resources[storage]: Required value"]),
        ("", "PersistentVolume", named(spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
         ["spec: Required value: must specify a volume type"]),
        ("storage.k8s.io", "StorageClass", named(provisioner="p", volumeBindingMode="Later"),
         ['volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"']),
        ("batch", "CronJob", named(spec={"schedule": "* * *", "jobTemplate": {"spec": {}}}),
         ['spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]']),
        ("autoscaling", "HorizontalPodAutoscaler", named(spec={"scaleTargetRef": {"kind": "D", "name": "x"}}),
         ["spec.maxReplicas: Required value: must be set and greater than 0",
          "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
          'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group']),
        ("autoscaling", "HorizontalPodAutoscaler", scaler(minReplicas=-1),
         ["spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"]),
        ("autoscaling", "HorizontalPodAutoscaler", scaler(minReplicas=0),
         ["spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"]),
        ("autoscaling", "HorizontalPodAutoscaler", scaler(minReplicas=0, metrics=[EXTERNAL]), []),
        ("autoscaling", "HorizontalPodAutoscaler",
         scaler(scaleTargetRef={"apiVersion": "a/b/c", "kind": "D", "name": "x"}),
         ['spec.scaleTargetRef.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c']),
        ("autoscaling", "HorizontalPodAutoscaler",
         scaler(scaleTargetRef={"kind": "ReplicationController", "name": "x"}), []),
        ("autoscaling", "HorizontalPodAutoscaler", scaler(behavior={"scaleDown": {"tolerance": "-1"}}),
         ['spec.behavior.scaleDown.tolerance: Invalid value: "-1": must be greater than or equal to 0']),
        ("policy", "PodDisruptionBudget", named(spec={"minAvailable": "x%"}),
         ["spec.minAvailable: Invalid value: \"x%\": a valid percent string must be a numeric string followed by an "
          "ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"]),
        ("scheduling.k8s.io", "PriorityClass", named(value=2_000_000_000),
         ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"]),
        ("scheduling.k8s.io", "PriorityClass", {"metadata": {"name": "system-mine"}, "value": 1},
         ["metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
          "error: system-mine is not a known system priority class"]),
        ("coordination.k8s.io", "Lease", named(spec={"leaseDurationSeconds": 0}),
         ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        (RBAC, "Role", named(rules=[{"verbs": ["get"]}]),
         ["rules[0].apiGroups: Required value: resource rules must supply at least one api group",
          "rules[0].resources: Required value: resource rules must supply at least one resource"]),
        (RBAC, "ClusterRoleBinding", named(roleRef={"kind": "Role", "name": "r"}),
         ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"']),
        (RBAC, "RoleBinding", named(roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "Robot", "name": "r"}]),
         ['subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"']),
    ],
)  # fmt: skip
def test_a_wrong_object_gets_the_errors_of_kubernetes(
    group: str, kind: str, object_: Object, expected: list[str]
) -> None:
    found = errors(group, kind, object_)
    if kind == "CronJob":
        found = [error for error in found if error.startswith("spec.schedule")]
    assert found == expected


@pytest.mark.parametrize(
    ("group", "kind", "old", "new", "expected"),
    [
        ("apps", "Deployment", workload(), workload(selector={"matchLabels": {"a": "c"}}),
         ['spec.selector: Invalid value: {"matchLabels":{"a":"c"}}: field is immutable']),
        ("apps", "StatefulSet", workload(serviceName="a"), workload(serviceName="b"),
         ['spec.serviceName: Invalid value: "b": field is immutable']),
        ("", "ConfigMap", named(immutable=True, data={"a": "b"}), named(immutable=True, data={"a": "c"}),
         ["data: Forbidden: field is immutable when `immutable` is set"]),
        ("", "Secret", named(type="a"), named(type="b"), ['type: Invalid value: "b": field is immutable']),
        ("", "Service", named(spec={"ports": [{"port": 1}], "clusterIP": "10.96.0.1"}),
         named(spec={"ports": [{"port": 1}], "clusterIP": "10.96.0.2"}),
         ['spec.clusterIPs[0]: Invalid value: ["10.96.0.2"]: may not change once set']),
        ("", "PersistentVolumeClaim", named(spec=PVC_SPEC), named(spec={**PVC_SPEC, "volumeName": "v"}), []),
        ("", "PersistentVolumeClaim", named(spec=PVC_SPEC), named(spec={**PVC_SPEC, "accessModes": ["ReadOnlyMany"]}),
         ["spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
          "for bound claims"]),
        ("storage.k8s.io", "StorageClass", named(provisioner="a"), named(provisioner="b"),
         ['provisioner: Invalid value: "b": field is immutable']),
        ("scheduling.k8s.io", "PriorityClass", named(value=1), named(value=2),
         ["value: Forbidden: may not be changed in an update."]),
        (RBAC, "RoleBinding", named(roleRef={"kind": "Role", "name": "a"}), named(roleRef={"kind": "Role", "name": "b"}),
         ['roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: '
          "field is immutable"]),
        ("node.k8s.io", "RuntimeClass", named(handler="a"), named(handler="b"),
         ['handler: Invalid value: "b": field is immutable']),
        ("networking.k8s.io", "IngressClass", named(spec={"controller": "a"}), named(spec={"controller": "b"}),
         ['spec.controller: Invalid value: "b": field is immutable']),
        ("", "Node", named(spec={"providerID": "a"}), named(spec={"providerID": "b"}),
         ["spec.providerID: Invalid value: null: field cannot be modified once set"]),
    ],
)  # fmt: skip
def test_what_may_not_change_is_reported(group: str, kind: str, old: Object, new: Object, expected: list[str]) -> None:
    assert update_errors(group, kind, old, new) == expected


def test_a_service_keeps_what_it_was_given() -> None:
    old = named(spec={"ports": [{"port": 1}], "clusterIP": "10.96.0.1"})
    assert update_errors("", "Service", old, named(spec={"ports": [{"port": 1}]})) == []


def test_the_phase_of_a_namespace_follows_its_deletion() -> None:
    new = {"metadata": {"name": "x"}, "status": {"phase": "Terminating"}}
    assert update_errors("", "Namespace", {"metadata": {"name": "x"}}, new, "status") == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
    ]


def test_an_address_changed_in_one_place_is_changed_in_both() -> None:
    old = named(spec={"ports": [{"port": 1}], "clusterIP": "10.96.0.1"})
    new = named(spec={"ports": [{"port": 1}], "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.1"]})
    assert update_errors("", "Service", old, new) == [
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.2"]: may not change once set'
    ]


def test_a_signing_request_is_decided_signed_and_asked_for_by_different_people() -> None:
    rules = rules_for("certificates.k8s.io", "CertificateSigningRequest")
    approved = {"type": "Approved", "status": "True"}
    old: Object = {"metadata": {}, "spec": {"username": "jane"}, "status": {"certificate": "eA=="}}

    def written(subresource: str, status: Object, before: Object = old) -> Object:
        new: Object = {"metadata": {}, "spec": {"username": "root"}, "status": status}
        rules.prepare_update(new, before, subresource)
        assert new["spec"] == {"username": "jane"}
        return new["status"]

    assert written("approval", {"conditions": [approved]}) == {"certificate": "eA==", "conditions": [approved]}
    decided = {**old, "status": {"conditions": [approved]}}
    denied = {"type": "Denied", "status": "True"}
    late = {"type": "Approved", "status": "True", "reason": "Later"}
    signed = written("status", {"certificate": "eQ==", "conditions": [late]}, decided)
    assert signed == {"certificate": "eQ==", "conditions": [approved]}
    undecided = {**decided, "status": {"conditions": [denied]}}
    found = rules.check_update(undecided, decided, "status")
    told = {finding.error.message for finding in found if finding.error.field == "status.conditions"}
    assert told == {
        'Forbidden: updates may not remove a condition of type "Approved"',
        'Forbidden: updates may not add a condition of type "Denied"',
    }
