"""Pods that have a node and do not run as wanted, workloads whose pods are refused, and queues: what was reported is quoted, and the
first advice is what to do about it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, devices_of, event, node, pod, request, thing, uid_of
from explain_corpus.objects import template as template_of

NOW = "2026-09-14T09:00:00Z"
KUEUE = "kueue.x-k8s.io/v1beta1"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"


class Asked(NamedTuple):
    """A cluster, what is asked about, and regular expressions for the first line and the first advice."""

    target: str
    objects: tuple[JSON, ...]
    cause: str
    advice: str = ""


def bound(name: str = "app", *, ready: bool = False, phase: str = "Running", **status: Any) -> JSON:
    """A pod on node n1."""
    conditions = [{"type": "Ready", "status": str(ready), "message": "containers with unready status: [main]"}]
    running = [{"name": "main", "ready": ready, "restartCount": 0, "state": {"running": {}}}]
    found = {"phase": phase, "conditions": conditions, "containerStatuses": running} | status
    made = pod(name, on="n1", labels={"app": name}, status=found)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 8000, "name": "http"}]
    return made


def crashing(code: int, message: str = "", reason: str = "Error") -> JSON:
    """A pod whose container ends again and again."""
    last = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "main", "ready": False, "restartCount": 6, "state": state, "lastState": last}
    return bound(containerStatuses=[container])


def probed(message: str, made: JSON | None = None) -> tuple[JSON, ...]:
    """A pod and what its kubelet says of a probe."""
    made = made or bound()
    return (made, event(made, "Unhealthy", message))


def reported(reason: str, message: str) -> tuple[JSON, ...]:
    """A pod that does not start, and why."""
    made = bound(phase="Pending", containerStatuses=[])
    return (made, event(made, reason, message))


def template() -> JSON:
    """What workloads here make."""
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}}


def refused(message: str) -> tuple[JSON, ...]:
    """A ReplicaSet whose pods the API server does not take."""
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template()}
    status = {"observedGeneration": 1, "conditions": [failure]}
    return (thing("apps/v1", "ReplicaSet", "web", "default", metadata={"generation": 1}, spec=spec, status=status),)


def queued(queue: JSON, **requests: str) -> tuple[JSON, ...]:
    """A Job that Kueue has suspended, in LocalQueue team of ClusterQueue cq."""
    made = template()
    made["spec"]["containers"][0]["resources"] = {"requests": requests}
    metadata = {"labels": {QUEUE_NAME: "team"}}
    spec = {"suspend": True, "template": made}
    job = thing("batch/v1", "Job", "sft", "default", metadata=metadata, spec=spec)
    local = thing(KUEUE, "LocalQueue", "team", "default", spec={"clusterQueue": "cq"})
    return (job, local, thing(KUEUE, "ClusterQueue", "cq", spec=queue))


def queued_workload(spec: JSON | None = None, **status: Any) -> JSON:
    """What stands for that Job in Kueue's queue."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sft", "uid": uid_of("Job", "default", "sft")}
    metadata = {"ownerReferences": [owner | {"controller": True}]}
    queue = {"queueName": "team"} | (spec or {})
    return thing(KUEUE, "Workload", "job-sft", "default", metadata=metadata, spec=queue, status=status)


def evicted(message: str) -> JSON:
    """What Kueue says of a workload that it has put back."""
    return {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", "message": message}


def leaving(**metadata: Any) -> JSON:
    """A pod that has been deleted."""
    made = bound(ready=True)
    made["metadata"] |= {"deletionTimestamp": "2026-09-14T08:20:00Z"} | metadata
    return made


def volume(phase: str, size: str, **spec: Any) -> tuple[JSON, ...]:
    """A volume claim for 5Gi, and a volume of its class."""
    wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "manual"}
    claim = wanted | {"resources": {"requests": {"storage": "5Gi"}}}
    has = wanted | {"capacity": {"storage": size}, "hostPath": {"path": "/d"}} | spec
    kind = "StorageClass"
    return (
        thing("v1", "PersistentVolumeClaim", "data", "default", spec=claim, status={"phase": "Pending"}),
        thing("v1", "PersistentVolume", "pv-1", spec=has, status={"phase": phase}),
        thing("storage.k8s.io/v1", kind, "manual", provisioner="kubernetes.io/no-provisioner"),
    )


def named_only(kind: str, name: str, *keys: str, namespace: str = "default") -> JSON:
    """A ConfigMap or Secret."""
    return thing("v1", kind, name, namespace, data=dict.fromkeys(keys, "c2VjcmV0"))


def waiting(reason: str, message: str) -> JSON:
    """A pod whose container does not start."""
    state = {"waiting": {"reason": reason, "message": message}}
    return bound(phase="Pending", containerStatuses=[{"name": "main", "restartCount": 0, "state": state}])


def resize(reason: str, message: str) -> JSON:
    """A change of resources that is not in force yet."""
    return {"type": "PodResizePending", "status": "True", "reason": reason, "message": message}


def lease(name: str, renewed: str) -> JSON:
    """A component's sign of life."""
    spec = {"holderIdentity": "cp-1_7f2a", "leaseDurationSeconds": 15, "renewTime": renewed}
    return thing("coordination.k8s.io/v1", "Lease", name, "kube-system", spec=spec)


def control_plane(name: str) -> JSON:
    """A component that crashes."""
    made = crashing(1, "bind: address already in use")
    made["metadata"] |= {"name": f"{name}-cp-1", "namespace": "kube-system", "labels": {"component": name}}
    return made


QUOTA = {"coveredResources": ["cpu"], "flavors": [{"name": "d", "resources": [{"name": "cpu", "nominalQuota": 10}]}]}
REFUSED_PORT = (
    'Readiness probe failed: Get "http://10.0.0.3:8080/": dial tcp 10.0.0.3:8080: connect: connection refused'
)
TIMEOUT = 'Liveness probe failed: Get "http://10.0.0.3:8080/": context deadline exceeded'
SANDBOX = 'failed to setup network for sandbox: plugin type="calico" failed (add): no such file or directory'
ASKED = {
    "probe of another port": Asked(
        "pod/app",
        probed(REFUSED_PORT),
        r"connects to port 8080, where nothing listens.*declares port 8000 \(http\)",
        "to 8000",
    ),
    "probe of a path": Asked(
        "pod/app",
        probed('Readiness probe failed: Get "http://10.0.0.3:8000/healthy": HTTP probe failed with statuscode: 404'),
        "readiness probe fails.*404",
        "instead of /healthy",
    ),
    "probe that kills": Asked(
        "pod/app", probed(TIMEOUT, crashing(137)), "crashes.*its liveness probe fails", "raise timeoutSeconds"
    ),
    "not ready without a word": Asked("pod/app", (bound(),), "not ready: container main is not ready$", "kubectl logs"),
    "command that is not there": Asked(
        "pod/app", (crashing(127),), "its command is not in the image", "correct the command"
    ),
    "other architecture": Asked(
        "pod/app", (crashing(1, "exec /a: exec format error"),), "another CPU architecture", "use an image"
    ),
    "killed without a limit": Asked(
        "pod/app", (crashing(137, "", "OOMKilled"),), "OOMKilled", "memory request and limit"
    ),
    "a container that has ended": Asked(
        "pod/app",
        (bound(containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": 2, "message": "bad flag"}}}]),),
        r"container main has ended on node n1 \(exit code 2: bad flag\)",
        "kubectl logs",
    ),
    "network": Asked(
        "pod/app", reported("FailedCreatePodSandBox", SANDBOX), "failed to setup network", "plugin calico"
    ),
    "config map": Asked(
        "pod/app", reported("FailedMount", 'configmap "c" not found'), "not found", "create ConfigMap default/c"
    ),
    "image on its way": Asked(
        "pod/app", reported("Pulling", 'Pulling image "x:1"'), "is starting on node n1: its image x:1"
    ),
    "finalizer": Asked(
        "pod/app", (leaving(finalizers=["a.b/c"]),), "terminating since.*kept by finalizer a.b/c", "check finalizer"
    ),
    "overdue": Asked(
        "pod/app", (leaving(),), r"should have been gone .* ago, and its containers still run", "check the kubelet"
    ),
    "evicted": Asked(
        "pod/app",
        (
            bound(
                phase="Failed", reason="Evicted", message="The node was low on resource: ephemeral-storage. Threshold"
            ),
        ),
        "Evicted.*ephemeral-storage",
        "ask for ephemeral-storage",
    ),
    "service account": Asked(
        "rs/web", refused('serviceaccount "bot" not found'), '"bot" not found', "create ServiceAccount default/bot"
    ),
    "pod security": Asked(
        "rs/web",
        refused('violates PodSecurity "restricted:latest"'),
        "PodSecurity",
        "^change in .* what Pod Security level restricted forbids",
    ),
    "webhook": Asked(
        "rs/web",
        refused('failed calling webhook "a.io": Post "https://istiod.mesh.svc:443/inject": no endpoints'),
        "failed calling webhook",
        "make Service mesh/istiod answer",
    ),
    "limit range": Asked("rs/web", refused("maximum cpu usage per Container is 2"), "maximum cpu", "LimitRange"),
    "queue stopped": Asked(
        "job/sft",
        queued({"stopPolicy": "Hold"}),
        r"ClusterQueue cq is stopped \(stopPolicy: Hold\)",
        "stopPolicy: None",
    ),
    "queue too small": Asked(
        "job/sft",
        queued({"resourceGroups": [QUOTA]}, cpu="16"),
        "16 cpu, and ClusterQueue cq may admit 10",
        "at most 10 cpu",
    ),
    "queue without the resource": Asked(
        "job/sft", queued({"resourceGroups": [QUOTA]}, memory="1Gi"), "no quota for memory", "nominalQuota for memory"
    ),
    "workload that is switched off": Asked(
        "job/sft",
        (
            *queued({}),
            queued_workload(spec={"active": False}, conditions=[evicted("exceeded the maximum number of retries")]),
        ),
        r"its Workload default/job-sft is deactivated \(spec.active: false\): exceeded the maximum number of retries",
        "kubectl patch workloads.kueue.x-k8s.io job-sft",
    ),
    "check of a workload": Asked(
        "job/sft",
        (
            *queued({}),
            queued_workload(admissionChecks=[{"name": "prov", "state": "Pending", "message": "no capacity in zone a"}]),
        ),
        "AdmissionCheck prov is Pending: no capacity in zone a",
        "AdmissionCheck prov",
    ),
    "workload that is tried again later": Asked(
        "job/sft",
        (
            *queued({}),
            queued_workload(
                conditions=[evicted("exceeded the PodsReady timeout")],
                requeueState={"requeueAt": "2026-09-14T09:05:00Z"},
            ),
        ),
        "it was evicted: exceeded the PodsReady timeout, and is retried at 2026-09-14T09:05:00Z",
        "check why its pods",
    ),
    "volume of a claim that is gone": Asked(
        "pvc/data",
        volume("Released", "5Gi", claimRef={"name": "old", "namespace": "default", "uid": "x"}),
        "was released by claim default/old",
        "remove spec.claimRef of PersistentVolume pv-1",
    ),
    "volume too small": Asked("pvc/data", volume("Available", "1Gi"), "has 1Gi, and 5Gi is asked for", "at most 1Gi"),
    "secret with another name": Asked(
        "pod/app",
        (*reported("FailedMount", 'secret "db-creds" not found'), named_only("Secret", "db-cred")),
        r'secret "db-creds" not found \(did you mean "db-cred"\?\)',
        "name Secret db-cred instead of db-creds in the pod",
    ),
    "config map of another namespace": Asked(
        "pod/app",
        (*reported("FailedMount", 'configmap "app" not found'), named_only("ConfigMap", "app", namespace="prod")),
        "there is one in namespace prod",
        "copy ConfigMap prod/app to namespace default",
    ),
    "key with another name": Asked(
        "pod/app",
        (
            waiting("CreateContainerConfigError", "couldn't find key passwrd in Secret default/db"),
            named_only("Secret", "db", "password", "user"),
        ),
        r'in Secret default/db \(did you mean "password"\?\)',
        "name key password instead of passwrd in the pod",
    ),
    "key that is not there": Asked(
        "pod/app",
        (
            waiting("CreateContainerConfigError", "couldn't find key token in ConfigMap default/db"),
            named_only("ConfigMap", "db", "host"),
        ),
        r"in ConfigMap default/db \(it has host\)",
        "add key token to ConfigMap default/db",
    ),
    "runs as root": Asked(
        "pod/app",
        (waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),),
        "runAsNonRoot",
        "runAsUser to a number other than 0",
    ),
    "runtime class without a handler": Asked(
        "pod/app",
        reported("FailedCreatePodSandBox", 'failed to get sandbox runtime: no runtime for "nvidia" is configured'),
        'no runtime for "nvidia" is configured',
        "configure the handler",
    ),
    "volume driver that is not registered": Asked(
        "pod/app",
        reported("FailedMount", "driver name ebs.csi.aws.com not found in the list of registered CSI drivers"),
        "ebs.csi.aws.com not found",
        "CSI driver ebs.csi.aws.com run on node n1",
    ),
    "image for another machine": Asked(
        "pod/app",
        (waiting("ErrImagePull", "no matching manifest for linux/arm64/v8 in the manifest list entries"),),
        "cannot pull image",
        "built for the architecture of node n1",
    ),
    "registry out of reach": Asked(
        "pod/app",
        (waiting("ImagePullBackOff", "dial tcp: lookup registry.corp on 10.0.0.10:53: no such host"),),
        "no such host",
        "let node n1 reach the registry",
    ),
    "registry limits pulls": Asked(
        "pod/app", (waiting("ErrImagePull", "429 Too Many Requests: toomanyrequests"),), "toomanyrequests", "mirror"
    ),
    "pull secret of another namespace": Asked(
        "pod/app",
        (
            (made := waiting("ImagePullBackOff", "pull access denied, 403 Forbidden")),
            event(made, "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (regcred)"),
            thing("v1", "Secret", "regcred", "tools"),
        ),
        r"its imagePullSecret regcred does not exist in namespace default \(there is one in namespace tools\)",
        "copy Secret tools/regcred to namespace default",
    ),
    "pull secret that is not there": Asked(
        "pod/app",
        (
            (made := waiting("ImagePullBackOff", "pull access denied, 403 Forbidden")),
            event(
                made,
                "FailedToRetrieveImagePullSecret",
                "Unable to retrieve some image pull secrets (regcred); attempting to pull the image may not succeed.",
            ),
            named_only("Secret", "reg-cred"),
        ),
        r'its imagePullSecret regcred does not exist \(did you mean "reg-cred"\?\)',
        "name imagePullSecret reg-cred instead of regcred",
    ),
    "image that is never pulled": Asked(
        "pod/app", (waiting("ErrImageNeverPull", ""),), "ErrImageNeverPull", "imagePullPolicy: IfNotPresent"
    ),
    "readiness gate": Asked(
        "pod/app",
        (
            bound(
                conditions=[
                    {
                        "type": "Ready",
                        "status": "False",
                        "reason": "ReadinessGatesNotReady",
                        "message": 'corresponding condition of pod readiness gate "a.io/up" does not exist.',
                    }
                ]
            ),
        ),
        "not ready: its readiness gate a.io/up is not True",
        "the component that sets condition a.io/up",
    ),
    "resize that does not fit": Asked(
        "pod/app",
        (bound(ready=True, conditions=[resize("Infeasible", "Node didn't have enough capacity: cpu")]),),
        r"but its new resources have not taken effect \(Infeasible\): Node didn't have enough capacity: cpu",
        "no more than node n1 has",
    ),
    "resize that waits": Asked(
        "pod/app", (bound(ready=True, conditions=[resize("Deferred", "")]),), "Deferred", "make room on node n1"
    ),
    "topology manager": Asked(
        "pod/app",
        (bound(phase="Failed", reason="TopologyAffinityError", message="Resources cannot be allocated"),),
        "TopologyAffinityError",
        "than one NUMA node has",
    ),
    "empty dir too large": Asked(
        "pod/app",
        (
            bound(
                phase="Failed",
                reason="Evicted",
                message='Usage of EmptyDir volume "cache" exceeds the limit "10Gi". ',
            ),
        ),
        "exceeds the limit",
        "sizeLimit of emptyDir volume cache above 10Gi",
    ),
    "priority class": Asked(
        "rs/web",
        (
            *refused("pods is forbidden: no PriorityClass with name hihg was found"),
            thing("scheduling.k8s.io/v1", "PriorityClass", "high", value=100),
        ),
        "no PriorityClass with name hihg",
        "priorityClassName: high",
    ),
    "policy": Asked(
        "rs/web",
        refused(
            "pods \"web-1\" is forbidden: ValidatingAdmissionPolicy 'gpu' with binding 'all' denied request: no team"
        ),
        "denied request: no team",
        "what ValidatingAdmissionPolicy 'gpu' with binding 'all' refuses: no team",
    ),
    "namespace that goes": Asked(
        "rs/web",
        refused("unable to create new content in namespace default because it is being terminated"),
        "being terminated",
        "which is being deleted",
    ),
    "nobody schedules": Asked(
        "pod/app",
        (pod("app"), lease("kube-scheduler", "2026-09-14T07:00:00.000000Z")),
        r"pending because kube-scheduler has not renewed its Lease kube-system/kube-scheduler of cp-1 for 2h: it does not run; "
        "nothing else is in its way, and it would be placed on node n1",
        "start kube-scheduler on cp-1",
    ),
    "nobody makes claims": Asked(
        "pod/app",
        (
            pod("app", templates={"gpu": "gpu"}, status={"resourceClaimStatuses": []}),
            template_of("gpu", devices_of(request())),
            lease("kube-controller-manager", "2026-09-14T07:00:00.000000Z"),
        ),
        "kube-controller-manager has not renewed its Lease.*so its claim gpu has not been created from",
        "start kube-controller-manager",
    ),
    "nobody looks at it": Asked(
        "rs/web",
        (
            thing("apps/v1", "ReplicaSet", "web", "default", metadata={"generation": 2}, spec=refused("")[0]["spec"]),
            control_plane("kube-controller-manager"),
        ),
        "has not been processed.*kube-controller-manager does not run: in pod kube-system/kube-controller-manager-cp-1",
        "fix pod kube-system/kube-controller-manager-cp-1",
    ),
    "a scheduler at work": Asked(
        "pod/app",
        (pod("app"), lease("kube-scheduler", "2026-09-14T08:59:55.000000Z")),
        "would be placed",
        "if it keeps",
    ),
}


def answer(asked: Asked) -> Explanation:
    """What is said of it."""
    objects = (read_object(each) for each in (node("n1"), *asked.objects))
    explainer = Explainer(Snapshot(tuple(objects), seconds_of(NOW)))
    kind, _, name = asked.target.partition("/")
    return explainer.pod("default", name) if kind == "pod" else explainer.workload(kind, "default", name)


@pytest.mark.parametrize("asked", [pytest.param(asked, id=name) for name, asked in ASKED.items()])
def test_what_was_reported_is_quoted_and_what_to_do_about_it_comes_first(asked: Asked) -> None:
    found = answer(asked)
    assert re.search(asked.cause, found.cause), found.cause
    first = found.changes[0].text if found.changes else ""
    assert re.search(asked.advice, first), first
    assert bool(first) == bool(asked.advice), first


def test_a_volume_that_another_node_has_is_told_with_its_pod() -> None:
    mount = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    old, new = (pod(name, on=where, volumes=mount) for name, where in (("old", "n1"), ("new", "n2")))
    new["status"] = {"phase": "Pending"}
    claim = {"accessModes": ["ReadWriteOnce"], "volumeName": "pv-1"}
    said = event(new, "FailedAttachVolume", 'Multi-Attach error for volume "pv-1" Volume is already used by pod(s) old')
    objects = (node("n2"), old, new, thing("v1", "PersistentVolumeClaim", "data", "default", spec=claim), said)
    found = answer(Asked("pod/new", objects, ""))
    assert (
        "volume pv-1 of PersistentVolumeClaim data (ReadWriteOnce) is still attached to node n1 for pod old"
        in found.cause
    )
    assert found.changes[0].text == "delete pod old, or wait until it ends"


def test_changes_to_a_pod_of_a_workload_are_changes_to_the_workload() -> None:
    waiting = pod("web-1", requests={"cpu": "40"})
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": uid_of("ReplicaSet", "default", "web"),
    }
    waiting["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    found = answer(Asked("pod/web-1", (waiting,), ""))
    assert found.changes[0].text == "ask for at most 32 cpu in ReplicaSet web"


def test_the_log_of_a_container_that_its_probe_kills_is_advised_once() -> None:
    made = crashing(137)
    made["spec"]["containers"][0]["livenessProbe"] = {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 10}
    refused = 'Liveness probe failed: Get "http://10.0.0.3:8000/": dial tcp 10.0.0.3:8000: connect: connection refused'
    found = answer(Asked("pod/app", probed(refused, made), ""))
    assert [change.text.partition(":")[0] for change in found.changes] == [
        "add a startup probe with the same check, periodSeconds",
        "if it still does not start, see its log",
    ]


@pytest.mark.parametrize(("policy", "deleted"), [("OrderedReady", True), ("Parallel", False)])
def test_a_pod_that_its_stateful_set_waits_for_is_deleted_after_a_change_to_the_template(
    policy: str, deleted: bool
) -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "app",
        "uid": uid_of("StatefulSet", "default", "app"),
    }
    made = waiting("ErrImagePull", 'failed to pull image "x:1": x:1: not found')
    made["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    template = {"spec": {"containers": [{"name": "main", "image": "x:1"}]}}
    spec = {"replicas": 1, "serviceName": "app", "podManagementPolicy": policy, "template": template}
    owning = thing("apps/v1", "StatefulSet", "app", "default", spec=spec, status={})
    objects = tuple(map(read_object, (node("n1"), made, owning)))
    found = Explainer(Snapshot(objects, NOW)).pod("default", "app").changes[0].text
    assert "in StatefulSet app" in found
    assert ("and delete pod app: the StatefulSet does not replace a pod" in found) == deleted
