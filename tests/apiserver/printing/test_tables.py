"""Tables: columns and cells that kubectl users know."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.printing.cells import Moment, duration, seconds_of
from allot.apiserver.printing.tables import UnreadableColumn, custom_printer, printer_for, table
from allot.apiserver.resources import Resource
from allot.store.port import Entry
from vectors import vectors_dir

NOW = "2026-11-15T12:00:00Z"
CREATED = "2026-11-15T11:59:52Z"
VECTORS = vectors_dir()


def row(api_version: str, kind: str) -> Resource:
    return next(r for r in builtin_resources() if (r.api_version, r.kind) == (api_version, kind))


def shown(api_version: str, kind: str, object_: dict[str, Any], *, wide: bool = False) -> dict[str, Any]:
    """The cells by column name that kubectl would show."""
    resource = row(api_version, kind)
    metadata = {"name": "x", "creationTimestamp": CREATED} | object_.get("metadata", {})
    whole = {"apiVersion": api_version, "kind": kind, **object_, "metadata": metadata}
    made = table(resource, [Entry("k", whole, 1)], now=NOW)
    columns, cells = made["columnDefinitions"], made["rows"][0]["cells"]
    assert len(columns) == len(cells)
    pairs = zip(columns, cells, strict=True)
    return {column["name"]: cell for column, cell in pairs if wide or not column["priority"]}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11100, "3h5m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (176400, "2d1h"),
        (691200, "8d"),
        (63071999, "729d"),
        (63072000, "2y"),
        (63158400, "2y1d"),
        (252288000, "8y"),
    ],
)
def test_ages_are_written_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert duration(seconds) == text


def pod(status: dict[str, Any], spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    containers = {"containers": [{"name": "a"}]}
    return {"metadata": metadata, "spec": containers | (spec or {}), "status": status}


def container(**state: Any) -> dict[str, Any]:
    more = {
        name: state.pop(name) for name in ("ready", "restartCount", "lastState", "started", "name") if name in state
    }
    return {"name": "a", "state": state, **more}


WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}
LAST = {"lastState": {"terminated": {"finishedAt": "2026-11-15T11:59:00Z", "exitCode": 1}}}


@pytest.mark.parametrize(
    ("object_", "ready", "status", "restarts"),
    [
        (pod({"phase": "Pending"}), "0/1", "Pending", "0"),
        (pod({"phase": "Running", "containerStatuses": [container(running={}, ready=True)]}), "1/1", "Running", "0"),
        (
            pod({"phase": "Running", "containerStatuses": [container(**WAITING, restartCount=3, **LAST)]}),
            "0/1",
            "CrashLoopBackOff",
            "3 (60s ago)",
        ),
        (
            pod(
                {
                    "phase": "Succeeded",
                    "containerStatuses": [container(terminated={"reason": "Completed", "exitCode": 0})],
                }
            ),
            "0/1",
            "Completed",
            "0",
        ),
        (
            pod({"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 2})]}),
            "0/1",
            "ExitCode:2",
            "0",
        ),
        (
            pod({"phase": "Failed", "containerStatuses": [container(terminated={"exitCode": 2, "signal": 9})]}),
            "0/1",
            "Signal:9",
            "0",
        ),
        (
            pod(
                {"phase": "Pending", "initContainerStatuses": [container(running={}, name="i")]},
                {"initContainers": [{"name": "i"}]},
            ),
            "0/1",
            "Init:0/1",
            "0",
        ),
        (
            pod(
                {"phase": "Pending", "initContainerStatuses": [container(**WAITING, name="i", restartCount=2)]},
                {"initContainers": [{"name": "i"}]},
            ),
            "0/1",
            "Init:CrashLoopBackOff",
            "2",
        ),
        (
            pod(
                {"phase": "Pending", "initContainerStatuses": [container(terminated={"exitCode": 3}, name="i")]},
                {"initContainers": [{"name": "i"}]},
            ),
            "0/1",
            "Init:ExitCode:3",
            "0",
        ),
        (
            pod(
                {
                    "phase": "Running",
                    "initContainerStatuses": [
                        container(running={}, name="i", started=True, ready=True, restartCount=1)
                    ],
                    "containerStatuses": [container(running={}, ready=True)],
                },
                {"initContainers": [{"name": "i", "restartPolicy": "Always"}]},
            ),
            "2/2",
            "Running",
            "1",
        ),
        (pod({"phase": "Running"}, deletionTimestamp=NOW), "0/1", "Terminating", "0"),
        (pod({"phase": "Running", "reason": "NodeLost"}, deletionTimestamp=NOW), "0/1", "Unknown", "0"),
        (pod({"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted", "0"),
        (
            pod({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/1",
            "SchedulingGated",
            "0",
        ),
        (
            pod(
                {
                    "phase": "Running",
                    "containerStatuses": [
                        container(terminated={"reason": "Completed", "exitCode": 0}),
                        container(running={}, ready=True),
                    ],
                },
                {"containers": [{"name": "a"}, {"name": "b"}]},
            ),
            "1/2",
            "NotReady",
            "0",
        ),
    ],
)
def test_the_row_of_a_pod(object_: dict[str, Any], ready: str, status: str, restarts: str) -> None:
    cells = shown("v1", "Pod", object_)
    assert cells == {"Name": "x", "Ready": ready, "Status": status, "Restarts": restarts, "Age": "8s"}


def test_wide_columns_of_a_pod_are_those_of_a_real_cluster() -> None:
    running = {
        "phase": "Running",
        "podIPs": [{"ip": "192.0.2.2"}],
        "containerStatuses": [container(running={}, ready=True)],
    }
    cells = shown("v1", "Pod", pod(running, {"nodeName": "lab-node"}), wide=True)
    assert list(cells.values()) == ["x", "1/1", "Running", "0", "8s", "192.0.2.2", "lab-node", "<none>", "<none>"]
    assert list(cells)[5:] == ["IP", "Node", "Nominated Node", "Readiness Gates"]


def test_pods_that_ended_carry_the_condition_that_hides_them() -> None:
    made = table(row("v1", "Pod"), [Entry("k", pod({"phase": "Succeeded"}), 1)], now=NOW)
    assert made["rows"][0]["conditions"][0]["reason"] == "Succeeded"


@pytest.mark.parametrize(
    ("status", "metadata", "state"),
    [
        ({}, {}, "pending"),
        ({"allocation": {}}, {}, "allocated"),
        ({"allocation": {}, "reservedFor": [{}]}, {}, "allocated,reserved"),
        ({"allocation": {}}, {"deletionTimestamp": NOW}, "deleted,allocated"),
        ({}, {"deletionTimestamp": NOW}, "deleted"),
    ],
)
def test_the_state_of_a_claim(status: dict[str, Any], metadata: dict[str, Any], state: str) -> None:
    claim = {"metadata": metadata, "status": status}
    assert shown("resource.k8s.io/v1", "ResourceClaim", claim)["State"] == state


def test_device_kinds_have_the_columns_of_kubernetes() -> None:
    slice_ = {"spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p"}}}
    assert list(shown("resource.k8s.io/v1", "ResourceSlice", slice_).values()) == ["x", "n", "d", "p", "8s"]
    rule = {"spec": {"taint": {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": CREATED}}}
    cells = shown("resource.k8s.io/v1beta2", "DeviceTaintRule", rule)
    assert list(cells.values()) == ["x", "k", "v", "NoExecute", "8s", "8s"]
    request: dict[str, Any] = {"spec": {"driver": "d"}}
    cells = shown("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", request)
    assert list(cells.values()) == ["x", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]
    request["status"] = {
        "poolCount": 2,
        "pools": [{"totalDevices": 4, "availableDevices": 1, "validationError": "e"}],
        "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": CREATED}],
    }
    cells = shown("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", request)
    assert list(cells.values()) == ["x", "d", "4", "1", "0", "0", "1", 2, "Complete (1/2 pools)", "8s"]


def test_a_pod_group_says_how_its_scheduling_went() -> None:
    group: dict[str, Any] = {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "workloadRef": {"workloadName": "w"}}
    }
    assert list(shown("scheduling.k8s.io/v1beta1", "PodGroup", group).values()) == ["x", "Gang", "w", "Pending", "8s"]
    group["status"] = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "False"}]}
    assert shown("scheduling.k8s.io/v1beta1", "PodGroup", group)["Status"] == "Unschedulable"


def test_nodes_services_and_workloads() -> None:
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }
    assert list(shown("v1", "Node", node, wide=True).values()) == [
        *("x", "Ready,SchedulingDisabled", "control-plane", "8s", "v1.37.0"),
        *("10.0.0.1", "<none>", "<unknown>", "6.1 (amd64)", "<unknown>"),
    ]
    service = {
        "spec": {
            "type": "NodePort",
            "clusterIPs": ["10.96.0.1"],
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
            "selector": {"b": "2", "a": "1"},
        }
    }
    assert list(shown("v1", "Service", service, wide=True).values()) == [
        *("x", "NodePort", "10.96.0.1", "<none>", "80:30080/TCP,53/UDP", "8s", "a=1,b=2")
    ]
    template = {"spec": {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j:2"}]}}
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}
    deployment = {
        "spec": {"replicas": 3, "template": template, "selector": selector},
        "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1},
    }
    assert list(shown("apps/v1", "Deployment", deployment, wide=True).values()) == [
        *("x", "1/3", 2, 1, "8s", "c,d", "i:1,j:2", "a=b,c in (x,y)")
    ]
    job = {"spec": {"parallelism": 2}, "status": {"startTime": "2026-11-15T11:55:00Z", "succeeded": 1}}
    assert list(shown("batch/v1", "Job", job).values()) == ["x", "Running", "1/1 of 2", "5m", "8s"]


def test_an_autoscaler_looks_the_same_in_both_versions() -> None:
    target = {"kind": "Deployment", "name": "web"}
    v1 = {"spec": {"scaleTargetRef": target, "maxReplicas": 5, "targetCPUUtilizationPercentage": 80}}
    cells = shown("autoscaling/v1", "HorizontalPodAutoscaler", v1)
    assert list(cells.values()) == ["x", "Deployment/web", "cpu: <unknown>/80%", "<unset>", 5, 0, "8s"]


def test_events_of_both_groups_have_the_same_row() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "type": "Warning",
        "reason": "Failed",
        "message": " text\n",
        "lastTimestamp": CREATED,
    }
    cells = shown("v1", "Event", event)
    assert list(cells.values()) == ["8s", "Warning", "Failed", "pod/p", "text"]
    new = {"regarding": {"kind": "Pod", "name": "p"}, "type": "Warning", "reason": "Failed", "note": "text"}
    cells = shown("events.k8s.io/v1", "Event", new | {"deprecatedLastTimestamp": CREATED})
    assert list(cells.values()) == ["8s", "Warning", "Failed", "pod/p", "text"]


def test_quota_rows_tell_requests_from_limits() -> None:
    quota = {"status": {"hard": {"pods": "10", "limits.cpu": "4"}, "used": {"pods": "1"}}}
    assert list(shown("v1", "ResourceQuota", quota).values()) == ["x", "pods: 1/10", "limits.cpu: 0/4", "8s"]


def test_kinds_without_columns_show_when_they_were_created() -> None:
    assert shown("rbac.authorization.k8s.io/v1", "Role", {}) == {"Name": "x", "Created At": CREATED}


@pytest.mark.parametrize("resource", builtin_resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
def test_every_kind_prints_whatever_an_object_holds(resource: Resource) -> None:
    printer = printer_for(resource)
    for value in (None, 7, "x", [], {}, [None], [{}], {"a": {}}):
        object_ = dict.fromkeys(("metadata", "spec", "status", "data", "subsets", "involvedObject", "endpoints"), value)
        cells = printer.cells(object_, Moment(seconds_of(NOW) or 0))
        assert len(cells) == len(printer.columns)


def test_the_object_in_a_row_is_its_metadata_all_of_it_or_nothing() -> None:
    entry = Entry("k", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}, 1)
    resource = row("v1", "ConfigMap")
    made = table(resource, [entry], now=NOW, metadata={"resourceVersion": "5"})
    assert made["metadata"] == {"resourceVersion": "5"}
    assert made["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "x"},
    }
    assert table(resource, [entry], now=NOW, include_object="Object")["rows"][0]["object"] is entry.object
    assert table(resource, [entry], now=NOW, include_object="None")["rows"][0]["object"] is None
    assert table(resource, [entry], now=NOW, headers=False)["columnDefinitions"] is None


def test_custom_columns_come_from_json_paths() -> None:
    printer = custom_printer(
        [
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Seen", "type": "date", "jsonPath": ".status.seen", "priority": 1},
            {"name": "Bad", "type": "integer", "jsonPath": ".status.seen"},
            {"name": "Names", "type": "string", "jsonPath": ".spec.names"},
        ]
    )
    object_ = {
        "metadata": {"name": "x"},
        "spec": {"replicas": 3.0, "names": ["a"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "seen": CREATED},
    }
    cells = printer.cells(object_, Moment(seconds_of(NOW) or 0))
    assert cells == ["x", 3, "True", "8s", None, '["a"]']
    assert [column.priority for column in printer.columns] == [0, 0, 0, 1, 0, 0]
    assert [column.name for column in custom_printer([]).columns] == ["Name", "Age"]
    with pytest.raises(UnreadableColumn, match=r"unrecognized column definition '\.a\['"):
        custom_printer([{"name": "X", "type": "string", "jsonPath": ".a["}])


@pytest.mark.skipif(VECTORS is None, reason="vectors are not beside the repository nor in ALLOT_VECTORS")
def test_every_example_prints() -> None:
    assert VECTORS is not None
    printed = 0
    for path in sorted((VECTORS / "api").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and "kind" in document:
                resource = row(document["apiVersion"], document["kind"])
                made = table(resource, [Entry("k", document, 1)], now=NOW)
                assert len(made["rows"][0]["cells"]) == len(made["columnDefinitions"])
                printed += 1
    assert printed > 20


def test_scales_and_statuses_have_columns_of_their_own() -> None:
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web", "creationTimestamp": CREATED},
        "spec": {"replicas": 3},
        "status": {"replicas": 1},
    }
    made = table(row("apps/v1", "Deployment"), [Entry("k", scale, 1)], now=NOW)
    assert [column["name"] for column in made["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert made["rows"][0]["cells"] == ["web", 3, 1, "8s"]
    status = {"apiVersion": "v1", "kind": "Status", "status": "Success"}
    made = table(row("apps/v1", "Deployment"), [Entry("k", status, 1)], now=NOW)
    assert made["rows"][0]["cells"] == ["Success", "", ""]
