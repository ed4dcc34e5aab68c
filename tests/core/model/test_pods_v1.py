"""A pod is one thing: what its node reads of it is what everybody reads, and more."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.model.codec import DecodeError, decode, decode_served
from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.core_v1 import Container, Pod, PodSpec, Volume
from allot.core.model.pods_v1 import RunnablePod, RunnablePodSpec, decode_runnable
from allot.core.model.volumes_v1 import RunnableVolume

WHOLE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "x", "controller": True}
        ],
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "nodeName": "n",
        "hostname": "h",
        "volumes": [
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        ],
        "initContainers": [{"name": "side", "restartPolicy": "Always"}],
        "containers": [
            {
                "name": "c",
                "image": "x",
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "ports": [{"name": "http", "containerPort": 8080}],
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            }
        ],
        "tolerations": [{"operator": "Exists"}],
    },
    "status": {
        "phase": "Failed",
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        "conditions": [{"type": "Ready", "status": "False", "lastProbeTime": None}],
        "containerStatuses": [
            {"name": "c", "ready": False, "state": {"terminated": {"exitCode": 3, "containerID": "x://1"}}},
            {"name": "d", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": {}},
        ],
    },
}


def test_what_everybody_reads_of_a_pod_its_node_reads_too() -> None:
    common, whole = decode_served(WHOLE, Pod), decode_runnable(WHOLE)
    assert isinstance(whole, Pod)
    assert (whole.status, whole.key) == (common.status, common.key)
    assert whole.metadata == msgspec.structs.replace(common.metadata, managed_fields=())
    for name in PodSpec.__struct_fields__:
        if name in ("restart_policy", "termination_grace_period_seconds"):
            continue  # where none is given, the node acts on the API server's default
        mine, theirs = getattr(whole.spec, name), getattr(common.spec, name)
        if name.endswith("containers") or name == "volumes":
            mine = tuple(_narrowed(each, other) for each, other in zip(mine, theirs, strict=True))
        assert mine == theirs, name


def _narrowed(value: msgspec.Struct, other: msgspec.Struct) -> msgspec.Struct:
    """What the other's type knows of a value, and of the parts of it."""
    fields = {}
    for name in other.__struct_fields__:
        part, same = getattr(value, name), getattr(other, name)
        both = isinstance(part, msgspec.Struct) and isinstance(same, msgspec.Struct)
        fields[name] = _narrowed(part, same) if both else part
    return type(other)(**fields)


@pytest.mark.parametrize(
    ("runnable", "common"), [(RunnablePodSpec, PodSpec), (RunnableContainer, Container), (RunnableVolume, Volume)]
)
def test_no_field_is_declared_twice_but_to_narrow_it(runnable: type[PodSpec], common: type[PodSpec]) -> None:
    narrowed = {
        "volumes",
        "init_containers",
        "containers",
        "ephemeral_containers",
        "empty_dir",
        "host_path",
        "image",
        "startup_probe",
        "liveness_probe",
        "readiness_probe",
    }
    defaulted = {"restart_policy", "termination_grace_period_seconds"}
    twice = set(runnable.__annotations__) & set(common.__struct_fields__)
    assert twice <= narrowed | defaulted


def test_parts_that_run_containers_are_read() -> None:
    pod = decode_runnable(WHOLE)
    container = pod.container("c")
    assert container is not None and container.liveness_probe is not None and container.readiness_probe is not None
    assert container.liveness_probe.http_get is not None and container.readiness_probe.tcp_socket is not None
    assert (container.liveness_probe.http_get.port, container.readiness_probe.tcp_socket.port) == ("http", 8080)
    assert (container.liveness_probe.period_seconds, container.readiness_probe.period_seconds) == (5, 10)
    assert [each.name for each in pod.containers()] == ["side", "c"]
    assert [each.is_sidecar for each in pod.containers()] == [True, False]
    assert pod.spec.volumes[0].projected is not None
    assert (pod.spec.restart_policy, pod.spec.termination_grace_period_seconds) == ("Always", 30)


def test_null_means_the_default_here_too() -> None:
    probe = {"httpGet": {"port": 1, "path": None}, "periodSeconds": None}
    spec = {
        "containers": [{"name": "c", "livenessProbe": probe, "env": None}],
        "terminationGracePeriodSeconds": None,
        "restartPolicy": None,
    }
    pod = decode_runnable({"metadata": {"name": "p", "creationTimestamp": None}, "spec": spec})
    found = pod.spec.containers[0].liveness_probe
    assert found is not None and found.http_get is not None
    assert (found.period_seconds, found.http_get.path, pod.spec.termination_grace_period_seconds) == (10, "/", 30)


@pytest.mark.parametrize(
    ("port", "text"),
    [
        (True, "expected int32, got boolean true"),
        (2**31, "expected int32 (from -2147483648 to 2147483647), got number 2147483648"),
        ([], "expected int32, got array"),
    ],
)
def test_a_port_is_a_number_or_a_name(port: object, text: str) -> None:
    value = {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": port}}}]}}
    with pytest.raises(DecodeError) as caught:
        decode_runnable(value)
    assert str(caught.value) == f"spec.containers[0].livenessProbe.httpGet.port: {text}"


def test_the_states_of_containers_are_read_and_survive() -> None:
    first, second = decode_served(WHOLE, Pod).status.container_statuses
    assert first.state is not None and first.state.terminated is not None and first.state.terminated.exit_code == 3
    assert second.state is not None and second.state.running is not None and second.state.terminated is None


def test_an_int_or_string_is_read_alike_in_both_ways() -> None:
    for port in (80, "http"):
        value = {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": port}}}]}}
        assert decode(value, RunnablePod).object == decode_served(value, RunnablePod)
