"""Why a workload is not as wanted: causes rolled up from pods, conditions, events and rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer, NotFound
from allot.core.advice.explain.report import Explanation, Reason, State
from core.advice.explain.clusters import (
    asks,
    claim,
    device_class,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    wanting,
)

Object = dict[str, Any]

LABELS = {"app": "web"}
READY = [{"type": "Ready", "status": "True"}]
CPU = device_class()


def meta(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1, **more}


def owned(object_: Object, kind: str, owner: str, **labels: str) -> Object:
    reference = {"apiVersion": "x/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    metadata = {**object_["metadata"], "ownerReferences": [reference], "labels": {**LABELS, **labels}}
    return {**object_, "metadata": metadata}


def pod_template(image: str = "v1", **spec: Any) -> Object:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": image}], **spec}}


def workload(kind: str, name: str, spec: Object, status: Object | None = None, **more: Any) -> Object:
    version = {"Job": "batch/v1", "CronJob": "batch/v1"}.get(kind, "apps/v1")
    shown = {"observedGeneration": 1, **(status or {})} if version == "apps/v1" else status or {}
    return {"apiVersion": version, "kind": kind, "metadata": meta(name, **more), "spec": spec, "status": shown}


def set_of(kind: str, name: str, replicas: int, template: Object, **more: Any) -> Object:
    status = more.pop("status", {})
    spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template, **more}
    return workload(kind, name, spec, status)


def told(reason: str, message: str, kind: str, name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}", "namespace": "default"},
        "involvedObject": {"kind": kind, "namespace": "default", "name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2027-01-15T08:00:00Z",
    }


def ready(made: Object) -> Object:
    return {**made, "status": {**made["status"], "conditions": READY}}


def why(word: str, name: str, *objects: Object | list[Object]) -> Explanation:
    return Explainer(snapshot(*objects)).workload(word, "default", name)


def rollout(unavailable: int | str = "25%") -> list[Object]:
    """Two replicas hold both GPUs; the new pod waits for one of them."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": unavailable}}
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    status = {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "conditions": [late]}
    deployment = set_of("Deployment", "web", 2, pod_template("v2"), strategy=strategy, status=status)
    old = owned(
        set_of("ReplicaSet", "web-old", 2, pod_template("v1"), status={"readyReplicas": 2}), "Deployment", "web"
    )
    new = owned(set_of("ReplicaSet", "web-new", 1, pod_template("v2")), "Deployment", "web")
    made = [device_class(), node("n"), pool("n", gpus(2)), deployment, old, new]
    for number in range(2):
        name = f"web-old-{number}"
        made.append(claim(f"{name}-gpu", asks(), owner=name, status=holding("n", f"gpu-{number}", users=(name,))))
        made.append(owned(ready(running(name, "n", f"{name}-gpu")), "ReplicaSet", "web-old"))
    made.append(claim("web-new-0-gpu", asks(), owner="web-new-0"))
    made.append(owned(wanting("web-new-0", "web-new-0-gpu"), "ReplicaSet", "web-new"))
    return made


def test_a_rollout_whose_surge_pod_finds_no_device_can_never_go_on() -> None:
    found = why("deploy", "web", rollout())
    assert (found.reason, found.state) == (Reason.ROLLOUT_STUCK, State.NOT_AS_WANTED)
    assert "Deployment default/web cannot continue its rollout: pod web-new-0 is pending because" in found.cause
    assert "maxUnavailable is 0 (25% of 2 replicas, rounded down)" in found.cause
    assert "condition Progressing is False, ProgressDeadlineExceeded: timed out" in found.details
    first, second = found.changes
    assert first.verified and first.node == "n" and "maxSurge: 0 and maxUnavailable: 1" in first.text
    assert first.patches[0].kind == "Deployment"
    assert second.verified and "Recreate" in second.text


def test_a_rollout_that_may_take_an_old_pod_away_is_not_stuck() -> None:
    found = why("deploy", "web", rollout(unavailable=1))
    assert found.reason is not Reason.ROLLOUT_STUCK and found.state is State.NOT_AS_WANTED


def test_changes_are_only_those_that_help() -> None:
    """A template that asks for more than the hardware has: giving old pods up does not help."""
    objects = rollout()
    objects[-2]["spec"] = asks(count=3)
    found = why("deploy", "web", objects)
    assert found.reason is Reason.ROLLOUT_STUCK
    assert not any("maxSurge" in change.text for change in found.changes)


def test_pods_that_wait_for_devices_are_rolled_up_into_the_replica_set_and_its_deployment() -> None:
    deployment = set_of("Deployment", "web", 2, pod_template(), status={"replicas": 2, "updatedReplicas": 2})
    replica_set = owned(set_of("ReplicaSet", "web-1", 2, pod_template()), "Deployment", "web")
    pods = [owned(wanting(f"web-1-{number}", f"c{number}"), "ReplicaSet", "web-1") for number in range(2)]
    claims = [claim(f"c{number}", asks()) for number in range(2)]
    objects = [node("n"), device_class(), deployment, replica_set, *pods, *claims]
    for word, name in (("deploy", "web"), ("rs", "web-1")):
        found = why(word, name, objects)
        assert "has 0 of 2 pods ready: pods web-1-0 and web-1-1 are pending because" in found.cause
        assert found.reason in (Reason.NO_DRIVER, Reason.NO_DEVICES)
    lines = list(Explainer(snapshot(objects)).overview(None))
    assert len(lines) == 1 and lines[0].startswith("Deployment default/web ")


def test_pods_that_a_quota_refuses_are_said_so() -> None:
    message = 'pods "web-1-" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    deployment = set_of("Deployment", "web", 3, pod_template(), status={"readyReplicas": 2, "updatedReplicas": 2})
    replica_set = owned(
        set_of("ReplicaSet", "web-1", 3, pod_template(), status={"readyReplicas": 2, "conditions": [failure]}),
        "Deployment",
        "web",
    )
    found = why("deployment", "web", deployment, replica_set)
    assert found.reason is Reason.PODS_NOT_CREATED
    assert "has 2 of 3 pods ready because ResourceQuota default/q does not allow another pod" in found.cause
    assert found.changes[0].text == "raise ResourceQuota default/q to pods=3"


def test_a_selector_that_does_not_match_its_template_is_named() -> None:
    spec = {"selector": {"matchLabels": {"app": "other"}}, "template": pod_template()}
    found = why("deploy", "web", workload("Deployment", "web", spec))
    assert found.reason is Reason.SELECTOR_MISMATCH and "app=other" in found.cause and "app=web" in found.cause


def test_a_workload_that_nobody_looked_at_is_said_so() -> None:
    found = why("ds", "agent", set_of("DaemonSet", "agent", 1, pod_template(), status={"observedGeneration": 0}))
    assert found.reason is Reason.NOT_OBSERVED and "daemonset-controller" in found.changes[0].text


def test_an_ordered_set_waits_for_its_first_broken_pod() -> None:
    crashing = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
    broken = running("web-1", "n")
    broken["status"] |= {"containerStatuses": [crashing]}
    objects = [
        node("n"),
        set_of("StatefulSet", "web", 4, pod_template(), status={"updateRevision": "web-b"}),
        owned(ready(running("web-0", "n")), "StatefulSet", "web", **{"controller-revision-hash": "web-a"}),
        owned(broken, "StatefulSet", "web", **{"controller-revision-hash": "web-a"}),
    ]
    found = why("sts", "web", objects)
    assert found.reason is Reason.ORDERED
    assert "has 1 of 4 pods ready: pod web-1 is not running because container main crashes" in found.cause
    assert "OrderedReady" in found.cause and "2 pods after it are not created" in found.cause
    assert "kubectl delete pod web-1 -n default" in found.changes[0].text


@pytest.mark.parametrize(("current", "is_old"), [("web-b", False), ("web-a", True), ("", False)])
def test_a_pod_without_a_revision_is_of_the_current_one(current: str, is_old: bool) -> None:
    status = {"currentRevision": current, "updateRevision": "web-b"}
    waiting = owned(pod("web-0", cpu="99"), "StatefulSet", "web")
    found = why("sts", "web", node("n"), set_of("StatefulSet", "web", 1, pod_template(), status=status), waiting)
    assert ("its template has been changed since" in found.cause) is is_old


def test_a_set_whose_deleted_pod_stays_on_a_dead_node_says_so() -> None:
    dead = node("gone")
    dead["status"]["conditions"] = [
        {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    ]
    stuck = owned(running("web-1", "gone"), "StatefulSet", "web")
    stuck["metadata"] |= {"deletionTimestamp": "2027-01-15T07:00:00Z", "deletionGracePeriodSeconds": 30}
    objects = [node("n"), dead, set_of("StatefulSet", "web", 2, pod_template())]
    found = why("sts", "web", [*objects, owned(ready(running("web-0", "n")), "StatefulSet", "web"), stuck])
    assert "has 1 of 2 pods ready: pod web-1 on node gone has been terminating since" in found.cause
    assert "node gone is not ready" in found.cause and "only when the old one is gone" in found.cause
    assert found.changes[0].text.startswith("bring node gone back")


def test_a_daemon_set_that_no_node_matches_says_why_node_by_node() -> None:
    template = pod_template(nodeSelector={"gpu": "yes"})
    tainted = node("b", labels={"gpu": "yes"}, taints=[{"key": "special", "effect": "NoSchedule"}])
    found = why("ds", "agent", node("a"), tainted, set_of("DaemonSet", "agent", 1, template))
    assert found.reason is Reason.NO_NODE_MATCHES
    assert "1 node (a) lacks label gpu=yes of its nodeSelector" in found.cause
    assert "1 node (b) has taint special:NoSchedule that it does not tolerate" in found.cause
    assert found.changes[0].text == "tolerate taint special:NoSchedule in the template of DaemonSet agent"


def test_a_daemon_set_whose_nodes_are_full_names_the_node() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    status = {"desiredNumberScheduled": 1, "currentNumberScheduled": 1}
    waiting = owned(pod("agent-a", cpu="64", affinity=affinity), "DaemonSet", "agent")
    found = why("ds", "agent", node("a"), set_of("DaemonSet", "agent", 1, pod_template(), status=status), waiting)
    assert "runs on 0 of 1 node: pod agent-a is pending because" in found.cause and "cpu" in found.cause


@pytest.mark.parametrize(
    ("condition", "spec", "says"),
    [
        ({"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}, {"backoffLimit": 0}, "backoffLimit is 0"),
        ({"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}, {"activeDeadlineSeconds": 5}, "activeDeadlineSeconds: 5"),
        ({"reason": "PodFailurePolicy", "message": "Container main for pod default/t failed with exit code 42"}, {}, "exit code 42"),
    ],
)  # fmt: skip
def test_a_job_that_has_failed_says_how(condition: Object, spec: Object, says: str) -> None:
    status = {
        "failed": 1,
        "startTime": "2027-01-15T07:00:00Z",
        "conditions": [{"type": "Failed", "status": "True", **condition}],
    }
    ended = {"name": "main", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    failed = owned(pod("train-x", status={"phase": "Failed", "containerStatuses": [ended]}), "Job", "train")
    found = why("job", "train", workload("Job", "train", {"template": pod_template(), **spec}, status), failed)
    assert found.reason is Reason.JOB_FAILED and condition["reason"] in found.cause
    assert "container main of pod train-x ended with exit code 3" in found.cause
    assert says in " ".join((found.cause, *found.details))
    assert any("kubectl logs -n default train-x" in change.text for change in found.changes)


def test_jobs_that_are_suspended_complete_or_at_work() -> None:
    spec = {"template": pod_template()}
    suspended = why("job", "train", workload("Job", "train", {**spec, "suspend": True}))
    assert suspended.reason is Reason.SUSPENDED and suspended.state is State.NOT_AS_WANTED
    done = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}
    assert why("jobs", "train", workload("Job", "train", spec, done)).state is State.ENDED
    started = {"startTime": "2027-01-15T07:00:00Z", "active": 1}
    at_work = [
        workload("Job", "train", spec, started),
        owned(ready(running("train-x", "n")), "Job", "train"),
        node("n"),
    ]
    assert why("job", "train", at_work).state is State.AS_WANTED
    backing_off = [workload("Job", "train", spec, {**started, "active": 0, "failed": 2})]
    assert why("job", "train", backing_off).reason is Reason.BACK_OFF


@pytest.mark.parametrize(
    ("spec", "status", "reason", "says"),
    [
        ({"schedule": "61 * * * *"}, {}, Reason.SCHEDULE_INVALID, '"61 * * * *"'),
        ({"timeZone": "Mars/Base"}, {}, Reason.SCHEDULE_INVALID, "Mars/Base"),
        ({"suspend": True}, {}, Reason.SUSPENDED, "suspended"),
        ({}, {"lastScheduleTime": "2027-01-15T06:00:00Z"}, Reason.SCHEDULE_MISSED, "no controller has started it"),
        ({"startingDeadlineSeconds": 10}, {"lastScheduleTime": "2027-01-15T06:00:00Z"}, Reason.SCHEDULE_MISSED, "startingDeadlineSeconds (10)"),
        (
            {"concurrencyPolicy": "Forbid"},
            {"lastScheduleTime": "2027-01-15T06:00:00Z", "active": [{"kind": "Job", "name": "backup-1", "namespace": "default"}]},
            Reason.STILL_RUNNING,
            "concurrencyPolicy is Forbid (backup-1)",
        ),
    ],
)  # fmt: skip
def test_a_cron_job_says_why_it_does_not_run(spec: Object, status: Object, reason: Reason, says: str) -> None:
    """It is 2027-01-15T08:00:00Z."""
    job = owned(
        workload("Job", "backup-1", {"template": pod_template()}, {"startTime": "2027-01-15T06:00:00Z", "active": 1}),
        "CronJob",
        "backup",
    )
    made = {"schedule": "30 * * * *", "jobTemplate": {"spec": {"template": pod_template()}}, **spec}
    alive = owned(ready(running("backup-1-x", "n")), "Job", "backup-1")
    found = why(
        "cj",
        "backup",
        node("n"),
        job,
        alive,
        workload("CronJob", "backup", made, status, creationTimestamp="2027-01-01T00:00:00Z"),
    )
    assert found.reason is reason and says in found.cause


def test_a_cron_job_whose_last_job_failed_says_so() -> None:
    failed = {
        "startTime": "2027-01-15T07:30:00Z",
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}],
    }
    job = owned(workload("Job", "backup-1", {"template": pod_template()}, failed), "CronJob", "backup")
    made = {"schedule": "30 * * * *", "jobTemplate": {"spec": {"template": pod_template()}}}
    cron = workload("CronJob", "backup", made, {"lastScheduleTime": "2027-01-15T07:30:00Z"})
    found = why("cronjob", "backup", job, cron)
    assert found.reason is Reason.JOB_FAILED and "its last job failed: Job default/backup-1 has failed" in found.cause
    assert list(Explainer(snapshot(job, cron)).overview(None)) == [found.cause]


def autoscaler(target: str, *conditions: Object, **status: Any) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 3}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta("web"),
        "spec": spec,
        "status": {"conditions": list(conditions), **status},
    }


def test_an_autoscaler_names_its_missing_target_and_metric_and_its_maximum() -> None:
    web = set_of("Deployment", "web", 1, pod_template())
    missing = why("hpa", "web", web, autoscaler("wev"))
    assert (
        missing.reason is Reason.TARGET_MISSING
        and "Deployment default/wev does not exist (did you mean web?)" in missing.cause
    )
    able = {"type": "AbleToScale", "status": "True"}
    blind = {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "no metrics"}
    found = why("hpa", "web", web, autoscaler("web", able, blind))
    assert found.reason is Reason.METRIC_MISSING and "(FailedGetResourceMetric): no metrics" in found.cause
    active = {"type": "ScalingActive", "status": "True"}
    limited = {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}
    full = why("hpa", "web", web, autoscaler("web", able, active, limited, currentReplicas=3, desiredReplicas=3))
    assert full.reason is Reason.AT_MAXIMUM
    assert why("hpa", "web", web, autoscaler("web", able, active, desiredReplicas=2)).state is State.AS_WANTED


def volume_claim(class_name: str | None) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    if class_name is not None:
        spec["storageClassName"] = class_name
    status = {"phase": "Pending"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta("data"),
        "spec": spec,
        "status": status,
    }


def storage_class(name: str, provisioner: str = "disk.example.com", mode: str = "Immediate") -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


def test_a_volume_claim_says_why_it_is_not_bound() -> None:
    unknown = why("pvc", "data", volume_claim("fsat"), storage_class("fast"))
    assert unknown.reason is Reason.STORAGE_CLASS_MISSING
    assert "StorageClass fsat does not exist (did you mean fast?)" in unknown.cause
    lazy = storage_class("lazy", mode="WaitForFirstConsumer")
    alone = why("pvc", "data", volume_claim("lazy"), lazy)
    assert alone.reason is Reason.WAITS_FOR_CONSUMER and "no pod uses it" in alone.cause
    user = pod(
        "train", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], nodeSelector={"a": "b"}
    )
    used = why("pvc", "data", node("n"), volume_claim("lazy"), lazy, user)
    assert (
        used.reason is Reason.WAITS_FOR_CONSUMER
        and "waits for a node for its pod train, which is pending" in used.cause
    )
    late = why("pvc", "data", volume_claim("fast"), storage_class("fast"))
    assert late.reason is Reason.NOT_PROVISIONED and "disk.example.com" in late.cause
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "small"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Available"},
    }
    small = why("pvc", "data", volume_claim(""), volume)
    assert small.reason is Reason.NO_VOLUME and "small" in small.cause


def service(target: int | str = 80, selector: Object | None = None) -> Object:
    ports = [{"port": 80, "targetPort": target}]
    spec = {"selector": LABELS if selector is None else selector, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta("web"), "spec": spec}


def test_a_service_says_why_nobody_answers() -> None:
    nobody = why("svc", "web", service(), {**pod("p"), "metadata": meta("p", labels={"app": "wep"})})
    assert nobody.reason is Reason.NO_POD_SELECTED and "app=web" in nobody.cause
    assert "(pod p has app=wep)" in nobody.cause
    assert nobody.changes[0].text == "select app=wep instead of app=web in Service web"
    waiting = {**pod("web-0", nodeSelector={"a": "b"}), "metadata": meta("web-0", labels=LABELS)}
    none_ready = why("svc", "web", node("n"), service(), waiting)
    assert none_ready.reason is Reason.NO_READY_POD and "pod web-0 is pending because" in none_ready.cause
    up = ready(running("web-0", "n"))
    up["metadata"] = meta("web-0", labels=LABELS)
    up["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    port = why("svc", "web", node("n"), service("htpt"), up)
    assert port.reason is Reason.PORT_MISSING and "htpt" in port.cause and "http" in port.cause
    assert why("svc", "web", node("n"), service("http"), up).state is State.AS_WANTED
    assert why("svc", "web", service(selector={})).state is State.AS_WANTED


def test_the_overview_names_every_workload_that_is_not_as_wanted_once_and_no_other() -> None:
    objects = [
        *rollout(),
        workload("Job", "paused", {"template": pod_template(), "suspend": True}),
        volume_claim("none"),
        service(selector={"app": "nobody"}),
        pod("bare", nodeSelector={"a": "b"}),
    ]
    lines = list(Explainer(snapshot(objects)).overview(None))
    begins = [" ".join(line.split(" ")[:2]) for line in lines]
    assert begins == [
        "Deployment default/web",
        "PersistentVolumeClaim default/data",
        "Service default/web",
        "default/bare is",
    ]


def test_a_workload_that_is_not_there_is_not_found_with_a_hint() -> None:
    with pytest.raises(NotFound) as error:
        why("deploy", "wab", set_of("Deployment", "web", 1, pod_template()))
    assert (error.value.message, error.value.hint) == ("deployment default/wab: not found", "did you mean web?")
