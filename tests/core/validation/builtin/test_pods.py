"""Pods: defaults, and the rules that people meet most."""

from __future__ import annotations

from typing import Any

import pytest

from core.validation.builtin.builders import Object, created, errors, pod, update_errors, with_defaults

PROBE: Object = {"httpGet": {"port": 80}}


def test_a_minimal_pod_is_stored_as_in_a_real_cluster() -> None:
    spec = created("", "Pod", pod(hostNetwork=True, terminationGracePeriodSeconds=1))["spec"]
    assert spec == {
        "containers": [
            {
                "image": "i:1",
                "imagePullPolicy": "IfNotPresent",
                "name": "c",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "hostNetwork": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 1,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("registry:5000/busybox", "Always"),
        ("registry:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:0123", "IfNotPresent"),
        ("", "Always"),
    ],
)
def test_images_that_move_are_pulled_always(image: str, policy: str) -> None:
    container = with_defaults("", "Pod", pod(c_image=image))["spec"]["containers"][0]
    assert container["imagePullPolicy"] == policy


def test_limits_become_requests_in_canonical_form() -> None:
    resources = {"limits": {"cpu": "1000m", "memory": "1024Mi"}, "requests": {"cpu": "0.5"}}
    container = with_defaults("", "Pod", pod(c_resources=resources))["spec"]["containers"][0]
    assert container["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }


def test_probes_volumes_and_ports_get_their_defaults() -> None:
    value = with_defaults(
        "",
        "Pod",
        pod(
            c_livenessProbe=PROBE,
            c_ports=[{"containerPort": 80}],
            c_env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            hostNetwork=True,
            volumes=[
                {"name": "a"},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "hostPath": {"path": "/"}},
            ],
        ),
    )["spec"]
    container = value["containers"][0]
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    assert container["env"][0]["valueFrom"]["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}
    assert value["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "hostPath": {"path": "/", "type": ""}},
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_quality_of_service_follows_from_requests_and_limits(resources: Object, expected: str) -> None:
    status = created("", "Pod", pod(c_resources=resources))["status"]
    assert status == {"phase": "Pending", "qosClass": expected}


AFFINITY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}
SPREAD = {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "Maybe"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"restartPolicy": "Sometimes"},
         ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"']),
        ({"hostnameOverride": "a.b"}, []),
        ({"hostnameOverride": "a", "hostNetwork": True},
         ["spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"]),
        ({"hostnameOverride": "a", "setHostnameAsFQDN": True},
         ["spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"]),
        ({"hostnameOverride": "a" * 65}, ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
        ({"hostnameOverride": "A"},
         ['spec.hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case '
          "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. "
          "'example.com', regex used for validation is "
          "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"]),
        ({"dnsPolicy": "None"}, ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
        ({"c_imagePullPolicy": "Often"},
         ['spec.containers[0].imagePullPolicy: Unsupported value: "Often": '
          'supported values: "Always", "IfNotPresent", "Never"']),
        ({"c_volumeMounts": [{"name": "v", "mountPath": "/m"}]},
         ['spec.containers[0].volumeMounts[0].name: Not found: "v"']),
        ({"c_ports": [{"containerPort": 70000}]},
         ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"]),
        ({"c_ports": [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}]},
         ['spec.containers[0].ports[1].name: Duplicate value: "a"']),
        ({"c_env": [{"name": ""}]}, ["spec.containers[0].env[0].name: Required value"]),
        ({"c_env": [{"name": "a=b"}]},
         ['spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only '
          "of printable ASCII characters other than '='"]),
        ({"c_env": [{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
         ['spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty']),
        ({"c_env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]},
         ['spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.nope": error converting '
          "fieldPath: field label not supported: spec.nope"]),
        ({"c_livenessProbe": {}}, ["spec.containers[0].livenessProbe: Required value: must specify a handler type"]),
        ({"c_livenessProbe": {**PROBE, "successThreshold": 2}},
         ["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"]),
        ({"c_readinessProbe": {**PROBE, "successThreshold": 2}}, []),
        ({"c_livenessProbe": {**PROBE, "tcpSocket": {"port": 1}}},
         ["spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"]),
        ({"c_securityContext": {"runAsUser": -1}},
         ["spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"]),
        ({"volumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}}]},
         ["spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type"]),
        ({"volumes": [{"name": "a", "secret": {}}]}, ["spec.volumes[0].secret.secretName: Required value"]),
        ({"volumes": [{"name": "a"}, {"name": "a"}]}, ['spec.volumes[1].name: Duplicate value: "a"']),
        ({"volumes": [{"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}]},
         ['spec.volumes[0].configMap.items[0].path: Invalid value: "../x": must not contain \'..\'']),
        ({"tolerations": [{"operator": "Equal", "value": "x"}]},
         ['spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which '
          'means "match all values and all keys"']),
        ({"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5}]},
         ['spec.tolerations[0].effect: Invalid value: "": effect must be \'NoExecute\' when `tolerationSeconds` is set']),
        ({"nodeSelector": {"a b": "c"}},
         ['spec.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, \'-\', \'_\' or '
          "'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
          "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"]),
        ({"topologySpreadConstraints": [SPREAD]},
         ["spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
          'spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: '
          '"DoNotSchedule", "ScheduleAnyway"']),
        ({"initContainers": [{"name": "i", "image": "x", "livenessProbe": PROBE}]},
         ["spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without "
          "restartPolicy=Always"]),
        ({"initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always", "livenessProbe": PROBE}]}, []),
        ({"activeDeadlineSeconds": 0},
         ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"]),
        ({"hostAliases": [{"ip": "x"}]},
         ['spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']),
    ],
)  # fmt: skip
def test_a_wrong_spec_gets_the_errors_of_kubernetes(spec: Object, expected: list[str]) -> None:
    assert errors("", "Pod", pod(**spec)) == expected


def test_affinity_needs_a_topology_and_known_operators() -> None:
    found = errors("", "Pod", pod(affinity=AFFINITY))
    path = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey"
    assert found[0] == f"{path}: Required value: can not be empty"
    term = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": term}]}
    path = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
    assert errors("", "Pod", pod(affinity={"nodeAffinity": preferred})) == [
        f"{path}.weight: Invalid value: 0: must be in the range 1-100",
        f'{path}.preference.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
    ]


def test_tolerations_may_be_added_but_not_changed() -> None:
    one: Object = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    two: Object = {"key": "b", "operator": "Exists"}
    assert update_errors("", "Pod", pod(tolerations=[one]), pod(tolerations=[one, two])) == []
    assert update_errors("", "Pod", pod(tolerations=[one]), pod(tolerations=[{**one, "tolerationSeconds": 3}])) == []
    assert update_errors("", "Pod", pod(tolerations=[one]), pod(tolerations=[two])) == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_a_resize_changes_resources_only() -> None:
    small, large = {"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}
    assert update_errors("", "Pod", pod(c_resources=small), pod(c_resources=large), "resize") == []
    assert update_errors("", "Pod", pod(), pod(c_resources=large), "resize") == [
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing'
    ]


def test_a_resize_takes_nothing_away_and_needs_a_node_that_can_do_it() -> None:
    both = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    one = {"requests": {"cpu": "1"}}
    assert update_errors("", "Pod", pod(c_resources=both), pod(c_resources=one), "resize") == [
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
    ]
    large = pod(c_resources={"requests": {"cpu": "2"}})
    old = {**pod(c_resources=one), "status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}}
    assert update_errors("", "Pod", old, large, "resize") == [
        "spec: Forbidden: Pod running on node without support for resize"
    ]
    old["status"]["containerStatuses"][0]["resources"] = {}
    assert update_errors("", "Pod", old, large, "resize") == []
    mirror = pod(c_resources=one)
    mirror["metadata"] = {**mirror["metadata"], "annotations": {"kubernetes.io/config.mirror": "x"}}
    assert update_errors("", "Pod", mirror, large, "resize") == [": Forbidden: static pods cannot be resized"]


def test_a_resize_changes_the_resources_of_the_pod_itself_but_only_cpu_and_memory() -> None:
    def whole(**requests: str) -> Object:
        return pod(resources={"requests": requests, "limits": {"cpu": "4"}})

    assert update_errors("", "Pod", whole(cpu="1"), whole(cpu="2"), "resize") == []
    assert update_errors("", "Pod", whole(cpu="1", memory="1Gi"), whole(cpu="2"), "resize") == [
        "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"
    ]
    pages = pod(resources={"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}, "limits": {"cpu": "4"}})
    more = pod(resources={"requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "limits": {"cpu": "4"}})
    assert "spec: Forbidden: only cpu and memory resources are mutable at pod-level" in update_errors(
        "", "Pod", pages, more, "resize"
    )


def test_ephemeral_containers_stay() -> None:
    debugger = {"name": "debug", "image": "b"}
    with_debugger = pod(ephemeralContainers=[debugger])
    assert update_errors("", "Pod", pod(), with_debugger, "ephemeralcontainers") == []
    assert update_errors("", "Pod", with_debugger, pod(), "ephemeralcontainers") == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n'
    ]


@pytest.mark.parametrize("value", [None, 0, "x", [], {}, [None], [{}], {"x": [1]}])
@pytest.mark.parametrize(
    "name",
    ["volumes", "containers", "initContainers", "affinity", "tolerations", "securityContext", "dnsConfig", "overhead"],
)
def test_values_of_odd_types_never_raise(name: str, value: Any) -> None:
    errors("", "Pod", {"metadata": {"name": "p"}, "spec": {**pod()["spec"], name: value}})


@pytest.mark.parametrize("value", [None, 0, "x", [], {}, [None], [{}], {"x": [1]}])
@pytest.mark.parametrize(
    "name", ["ports", "env", "envFrom", "volumeMounts", "livenessProbe", "lifecycle", "securityContext", "resizePolicy"]
)
def test_values_of_odd_types_in_containers_never_raise(name: str, value: Any) -> None:
    errors("", "Pod", pod(**{f"c_{name}": value}))
