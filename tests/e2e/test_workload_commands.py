"""What kubectl shows of workloads and does with them: columns, descriptions, and the commands that are not about a rollout."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.clusters import WAIT, until
from e2e.kubectl import Kubectl
from e2e.test_workloads import BUDGET, DAEMON_SET, DEPLOYMENT, STATEFUL_SET

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: pi}
spec:
  completions: 3
  parallelism: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [echo, "3.14"]}]}
"""
CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  jobTemplate:
    metadata: {labels: {from: template}, annotations: {why: night}}
    spec:
      template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [echo, night]}]}}
"""
REPLICATION_CONTROLLER = """
apiVersion: v1
kind: ReplicationController
metadata: {name: old}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: old}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: "app:1", ports: [{containerPort: 80}]}]}
"""


@pytest.fixture
def kubectl(user_anywhere: Kubectl) -> Kubectl:
    """kubectl on a cluster with three nodes, of allot or around a real kube-apiserver."""
    return user_anywhere


def table(kubectl: Kubectl, *arguments: str) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of `kubectl get -o wide`, without the column AGE."""
    header, *rows = kubectl.rows("get", *arguments, "-o", "wide")
    age = header.index("AGE")
    return header[:age] + header[age + 1 :], [row[:age] + row[age + 1 :] for row in rows]


def described(kubectl: Kubectl, what: str) -> tuple[dict[str, str], list[tuple[str, str, str]]]:
    """The lines `name: value` of a description, and its events as type, reason and message."""
    text, _, events = kubectl("describe", *what.split("/")).partition("\nEvents:")
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    rows = [line.split(maxsplit=4) for line in events.splitlines() if line.startswith("  ")][2:]
    return fields, [(row[0], row[1], row[4]) for row in rows]


def names(kubectl: Kubectl, kind: str, *arguments: str) -> list[str]:
    return kubectl("get", kind, *arguments, "-o", "jsonpath={.items[*].metadata.name}").split()


def test_the_columns_of_all_kinds(kubectl: Kubectl) -> None:
    budget = BUDGET.replace("NAME", "web").replace("COUNT", "3")
    kubectl.apply("---".join((DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB, budget)))
    for what in ("deploy/web", "sts/db", "ds/agent"):
        kubectl("rollout", "status", what, WAIT)
    kubectl("wait", "--for=condition=Complete", "job/pi", WAIT)
    until(lambda: kubectl.json("get", "pdb", "web").get("status", {}).get("disruptionsAllowed") == 1)
    template = ["CONTAINERS", "IMAGES", "SELECTOR"]
    assert table(kubectl, "deploy") == (
        ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", *template],
        [["web", "4/4", "4", "4", "c", "app:1", "app=web"]],
    )
    (hash_,) = [pod["metadata"]["labels"]["pod-template-hash"] for pod in kubectl.json("get", "rs")["items"]]
    assert table(kubectl, "rs") == (
        ["NAME", "DESIRED", "CURRENT", "READY", *template],
        [[f"web-{hash_}", "4", "4", "4", "c", "app:1", f"app=web,pod-template-hash={hash_}"]],
    )
    assert table(kubectl, "sts") == (["NAME", "READY", "CONTAINERS", "IMAGES"], [["db", "3/3", "c", "app:1"]])
    nodes = str(len(kubectl.json("get", "nodes")["items"]))
    assert table(kubectl, "ds") == (
        ["NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE SELECTOR", *template],
        [["agent", *[nodes] * 5, "<none>", "c", "app:1", "app=agent"]],
    )
    header, (job,) = table(kubectl, "job")
    assert header == ["NAME", "STATUS", "COMPLETIONS", "DURATION", *template]
    uid = kubectl.json("get", "job", "pi")["metadata"]["uid"]
    assert job[:3] == ["pi", "Complete", "3/3"] and job[4:] == [
        "c",
        "busybox",
        f"batch.kubernetes.io/controller-uid={uid}",
    ]
    assert table(kubectl, "cronjob") == (
        ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST SCHEDULE", *template],
        [["nightly", "0 3 * * *", "Europe/Berlin", "False", "0", "<none>", "c", "busybox", "<none>"]],
    )
    assert table(kubectl, "pdb") == (
        ["NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS"],
        [["web", "3", "N/A", "1"]],
    )
    header, pods = table(kubectl, "pods", "-l", "app=web")
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    assert all(pod[1:4] == ["1/1", "Running", "0"] and pod[6:] == ["<none>", "<none>"] for pod in pods)
    shown = kubectl("get", "all")
    assert all(f"{kind}/" in shown for kind in ("deployment.apps", "statefulset.apps", "daemonset.apps", "job.batch"))


def test_what_describe_tells(kubectl: Kubectl) -> None:
    kubectl.apply("---".join((DEPLOYMENT, STATEFUL_SET, DAEMON_SET, JOB)))
    for what in ("deploy/web", "sts/db", "ds/agent"):
        kubectl("rollout", "status", what, WAIT)
    kubectl("wait", "--for=condition=Complete", "job/pi", WAIT)
    (set_,) = names(kubectl, "rs")
    fields, events = described(kubectl, "deploy/web")
    assert fields["Replicas"] == "4 desired | 4 updated | 4 total | 4 available | 0 unavailable"
    assert fields["NewReplicaSet"] == f"{set_} (4/4 replicas created)" and fields["OldReplicaSets"] == "<none>"
    assert events == [("Normal", "ScalingReplicaSet", f"Scaled up replica set {set_} from 0 to 4")]
    fields, events = described(kubectl, f"rs/{set_}")
    assert fields["Controlled By"] == "Deployment/web" and fields["Replicas"] == "4 current / 4 desired"
    made = sorted(f"Created pod: {name}" for name in names(kubectl, "pods", "-l", "app=web"))
    assert sorted(note for _, reason, note in events if reason == "SuccessfulCreate") == made
    fields, events = described(kubectl, "sts/db")
    assert fields["Replicas"] == "3 desired | 3 total" and fields["Pods Status"].startswith("3 Running / 0 Waiting")
    assert [note for _, _, note in events] == [f"Create Pod db-{i} in StatefulSet db successful" for i in range(3)]
    fields, _ = described(kubectl, "ds/agent")
    nodes = str(len(kubectl.json("get", "nodes")["items"]))
    assert (
        fields["Desired Number of Nodes Scheduled"] == fields["Number of Nodes Scheduled with Available Pods"] == nodes
    )
    fields, events = described(kubectl, "job/pi")
    assert fields["Pods Statuses"] == "0 Active (0 Ready) / 3 Succeeded / 0 Failed"
    assert [reason for _, reason, _ in events] == ["SuccessfulCreate"] * 3 + ["Completed"]


def test_a_replication_controller_works_like_a_replica_set(kubectl: Kubectl) -> None:
    kubectl.apply(REPLICATION_CONTROLLER)
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "rc/old", WAIT)
    assert table(kubectl, "rc")[1] == [["old", "2", "2", "2", "c", "app:1", "app=old"]]
    kubectl("expose", "rc", "old", "--port=80")
    until(lambda: len(_endpoints(kubectl, "old")) == 2)
    kubectl("scale", "rc/old", "--replicas=3", "--current-replicas=2")
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "rc/old", WAIT)
    gone = names(kubectl, "pods")[0]
    kubectl("delete", "pod", gone)
    until(lambda: len(names(kubectl, "pods")) == 3 and gone not in names(kubectl, "pods"))
    assert "replication-controller" in kubectl("describe", "rc", "old")
    kubectl("delete", "rc", "old", "--cascade=orphan")
    assert len(names(kubectl, "pods")) == 3
    kubectl.apply(REPLICATION_CONTROLLER)
    until(lambda: len(names(kubectl, "pods")) == 2)
    kubectl("delete", "rc", "old", "--cascade=foreground", WAIT)
    assert names(kubectl, "pods") == []


def _endpoints(kubectl: Kubectl, service: str) -> list[str]:
    slices = kubectl.json("get", "endpointslices", "-l", f"kubernetes.io/service-name={service}")["items"]
    return [each["addresses"][0] for one in slices for each in one["endpoints"] or () if each["conditions"]["ready"]]


def test_a_cron_job_is_started_by_hand_and_suspended(kubectl: Kubectl) -> None:
    kubectl.apply(CRON_JOB)
    kubectl("create", "job", "now", "--from=cronjob/nightly")
    kubectl("wait", "--for=condition=Complete", "job/now", WAIT)
    job = kubectl.json("get", "job", "now")["metadata"]
    assert job["annotations"]["cronjob.kubernetes.io/instantiate"] == "manual" and job["labels"]["from"] == "template"
    assert job["ownerReferences"][0]["kind"] == "CronJob" and job["annotations"]["why"] == "night"
    assert kubectl("logs", "job/now") == "night\n"
    # It is seen, and not counted as one that the clock has started.
    until(lambda: kubectl.json("get", "cronjob", "nightly").get("status", {}).get("lastSuccessfulTime"))
    assert "lastScheduleTime" not in kubectl.json("get", "cronjob", "nightly")["status"]
    kubectl("patch", "cronjob", "nightly", "-p", '{"spec":{"schedule":"* * * * *","suspend":true}}')
    assert table(kubectl, "cronjob")[1][0][3] == "True"
    assert "Invalid value" in kubectl.fails("patch", "cronjob", "nightly", "-p", '{"spec":{"schedule":"99 * * * *"}}')
    assert "unknown time zone" in kubectl.fails("patch", "cronjob", "nightly", "-p", '{"spec":{"timeZone":"Moon/Sea"}}')
    kubectl("delete", "cronjob", "nightly", "--cascade=foreground", WAIT)
    assert names(kubectl, "jobs") == [] and names(kubectl, "pods") == []


@pytest.mark.parametrize(("kind", "manifest"), [("sts", STATEFUL_SET), ("ds", DAEMON_SET), ("job", JOB)])
def test_pods_stay_or_go_as_the_cascade_says(kubectl: Kubectl, kind: str, manifest: str) -> None:
    name = {"sts": "db", "ds": "agent", "job": "pi"}[kind]

    def run() -> set[str]:
        kubectl.apply(manifest)
        if kind == "job":
            kubectl("wait", "--for=condition=Complete", "job/pi", WAIT)
        else:
            kubectl("rollout", "status", f"{kind}/{name}", WAIT)
        return set(names(kubectl, "pods"))

    pods = run()
    kubectl("delete", kind, name, "--cascade=orphan", WAIT)
    assert set(names(kubectl, "pods")) == pods
    until(lambda: all("ownerReferences" not in pod["metadata"] for pod in kubectl.json("get", "pods")["items"]))
    assert all(not pod["metadata"].get("finalizers") for pod in kubectl.json("get", "pods")["items"])
    if kind != "job":
        # One of the same selector takes over what is there.
        assert run() == pods
    else:
        kubectl("delete", "pods", "--all")
        run()
    kubectl("delete", kind, name, "--cascade=background", WAIT)
    until(lambda: names(kubectl, "pods") == [])
    run()
    kubectl("delete", kind, name, "--cascade=foreground", WAIT)
    assert names(kubectl, "pods") == []


def test_pods_are_evicted_within_a_budget(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 2"))
    kubectl("rollout", "status", "deploy/web", WAIT)
    kubectl.apply(BUDGET.replace("NAME", "web").replace("COUNT", "2"))
    until(lambda: kubectl.json("get", "pdb", "web").get("status", {}).get("currentHealthy") == 2)
    pods = names(kubectl, "pods")
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pods[0]}/eviction"
    eviction: Any = f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{pods[0]}"}}}}'
    refused = kubectl.fails("create", "--raw", path, "-f", "-", stdin=eviction)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
    refused = kubectl.fails("create", "--raw", f"{path}?dryRun=All", "-f", "-", stdin=eviction)
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused
    kubectl("patch", "pdb", "web", "-p", '{"spec":{"minAvailable":1}}')
    until(lambda: kubectl.json("get", "pdb", "web")["status"].get("disruptionsAllowed") == 1)
    kubectl("create", "--raw", f"{path}?dryRun=All", "-f", "-", stdin=eviction)
    assert kubectl.json("get", "pdb", "web")["status"]["disruptionsAllowed"] == 1 and pods[0] in names(kubectl, "pods")
    kubectl("create", "--raw", path, "-f", "-", stdin=eviction)
    until(lambda: pods[0] not in names(kubectl, "pods"))
    until(lambda: kubectl.json("get", "pdb", "web")["status"]["currentHealthy"] == 2)
    # A pod that never becomes ready may always go, if the budget says so.
    broken = (
        DEPLOYMENT.replace("replicas: 4", "replicas: 1")
        .replace("web", "sick")
        .replace(
            'image: "app:1"', 'image: busybox, command: [sleep, "3600"], readinessProbe: {exec: {command: ["false"]}}'
        )
    )
    kubectl.apply(broken)
    kubectl.apply(BUDGET.replace("NAME", "sick").replace("COUNT", "1, unhealthyPodEvictionPolicy: AlwaysAllow"))
    until(
        lambda: (
            [pod["status"]["phase"] for pod in kubectl.json("get", "pods", "-l", "app=sick")["items"]] == ["Running"]
        )
    )
    until(lambda: kubectl.json("get", "pdb", "sick").get("status", {}).get("observedGeneration"))
    (sick,) = names(kubectl, "pods", "-l", "app=sick")
    kubectl("create", "--raw", path.replace(pods[0], sick), "-f", "-", stdin=eviction.replace(pods[0], sick))
    until(lambda: sick not in names(kubectl, "pods"))


def test_autoscale_makes_an_autoscaler_and_wait_sees_what_is_asked(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT.replace("replicas: 4", "replicas: 1"))
    kubectl("rollout", "status", "deploy/web", WAIT)
    kubectl("autoscale", "deploy", "web", "--min=2", "--max=5", "--cpu-percent=70")
    made = kubectl.json("get", "hpa", "web")["spec"]
    assert made["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert (made["minReplicas"], made["maxReplicas"]) == (2, 5)
    # Fewer than the minimum is too few, whatever the metrics are.
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "deploy/web", WAIT)
    kubectl("wait", "--for=condition=Available=true", "deploy/web", WAIT)
    kubectl("wait", "--for=create", "hpa/web", WAIT)
    kubectl("delete", "deploy,hpa", "web", "--wait=false")
    kubectl("wait", "--for=delete", "deploy/web", WAIT)
    assert "timed out waiting for the condition" in kubectl.fails(
        "wait", "--for=create", "deploy/never", "--timeout=1s"
    )
