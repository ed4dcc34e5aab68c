"""Nobody gets into a restricted queue without the right to use it, by whatever way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allot.apiserver.access.certificates import KeyPair
from allot.installation import definitions as installation
from security.servers import Answer, Server
from waiting import wait_for

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
KAI_QUEUES = "/apis/scheduling.run.ai/v2/queues"
VOLCANO_QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
Object = dict[str, Any]
QUEUE, FREE = {"kai.scheduler/queue": "team"}, {"kai.scheduler/queue": "free"}
PATHS = {
    "Pod": "/api/v1/namespaces/queues/pods",
    "ReplicationController": "/api/v1/namespaces/queues/replicationcontrollers",
    "PodTemplate": "/api/v1/namespaces/queues/podtemplates",
    "Deployment": "/apis/apps/v1/namespaces/queues/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/queues/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/queues/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/queues/daemonsets",
    "ControllerRevision": "/apis/apps/v1/namespaces/queues/controllerrevisions",
    "Job": "/apis/batch/v1/namespaces/queues/jobs",
    "CronJob": "/apis/batch/v1/namespaces/queues/cronjobs",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/queues/horizontalpodautoscalers",
    "KaiGroup": "/apis/scheduling.run.ai/v2alpha2/namespaces/queues/podgroups",
    "VolcanoGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/queues/podgroups",
    "VolcanoJob": "/apis/batch.volcano.sh/v1alpha1/namespaces/queues/jobs",
}


def pod_spec(**more: Any) -> Object:
    return {"containers": [{"name": "main", "image": "registry.example.com/main:1"}], **more}


def template(labels: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"labels": {"app": "x", **(labels or {})}}, "spec": pod_spec(**spec)}


def workload(name: str, labels: Object | None = None, own: Object | None = None, **spec: Any) -> Object:
    selector = {"matchLabels": {"app": "x"}}
    return {
        "metadata": {"name": name, "labels": own or {}},
        "spec": {"selector": selector, "template": template(labels), **spec},
    }


def job(name: str, labels: Object | None = None, own: Object | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": own or {}},
        "spec": {"template": template(labels, restartPolicy="Never", **spec)},
    }


def pod(name: str, labels: Object | None = None, annotations: Object | None = None, **more: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": pod_spec(**more),
    }


def owned(made: Object, owner: Object, kind: str, version: str) -> Object:
    reference = {
        "apiVersion": version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [{**reference, "controller": True}]}}


class Cluster:
    """A server with queues: `free`, and `department` above `team`, where the department is restricted."""

    def __init__(self, server: Server) -> None:
        self.server = server
        for object_ in installation.objects():
            if object_["kind"] == "CustomResourceDefinition":
                server.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object_)
        for path in (KAI_QUEUES, VOLCANO_QUEUES, *PATHS.values()):
            server.wait_until_served(path)
        server.create("/api/v1/namespaces", {"metadata": {"name": "queues"}})
        mark = {"labels": {"allot.dev/restricted": "true"}}
        self._queue(KAI_QUEUES, {"name": "free"}, {"resources": {}})
        self._queue(KAI_QUEUES, {"name": "department", **mark}, {"resources": {}})
        self._queue(KAI_QUEUES, {"name": "team"}, {"parentQueue": "department", "resources": {}})
        self._queue(VOLCANO_QUEUES, {"name": "default", **mark}, {})
        self._queue(VOLCANO_QUEUES, {"name": "batch", **mark}, {})
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        self.outsider = self._user("outsider", "", everything)
        use = {"verbs": ["use"], "apiGroups": ["scheduling.run.ai"], "resources": ["queues"], "resourceNames": ["team"]}
        self.member = self._user("member", "team-users", [use])
        self.controller = server.user(
            "system:serviceaccount:kube-system:job-controller", "system:serviceaccounts:kube-system"
        )
        self._bind("controller", "system:serviceaccount:kube-system:job-controller", "Role", "everything")

    def _queue(self, path: str, metadata: Object, spec: Object) -> None:
        version = path.removeprefix("/apis/").removesuffix("/queues")
        self.server.create(path, {"apiVersion": version, "kind": "Queue", "metadata": metadata, "spec": spec})

    def _user(self, name: str, cluster_role: str, rules: list[Object]) -> KeyPair:
        """May do everything in the namespace, but that is no right to queues, which are of the cluster."""
        roles = f"{RBAC}/namespaces/queues/roles"
        if not cluster_role:
            self.server.create(roles, {"metadata": {"name": "everything"}, "rules": rules})
        else:
            self.server.create(f"{RBAC}/clusterroles", {"metadata": {"name": cluster_role}, "rules": rules})
            self._bind(name, name, "ClusterRole", cluster_role)
        self._bind(name, name, "Role", "everything")
        return self.server.user(name)

    def _bind(self, binding: str, user: str, kind: str, role: str) -> None:
        group = {"apiGroup": "rbac.authorization.k8s.io"}
        where, plural = ("", "clusterrolebindings") if kind == "ClusterRole" else ("/namespaces/queues", "rolebindings")
        self.server.create(
            f"{RBAC}{where}/{plural}",
            {
                "metadata": {"name": binding},
                "roleRef": {**group, "kind": kind, "name": role},
                "subjects": [{**group, "kind": "User", "name": user}],
            },
        )

    def post(self, kind: str, object_: Object, who: KeyPair, query: str = "") -> Answer:
        path = PATHS[kind]
        version = path.removeprefix("/apis/").removeprefix("/api/").partition("/namespaces")[0]
        typed = {"apiVersion": version, "kind": kind.removeprefix("Kai").removeprefix("Volcano"), **object_}
        typed["kind"] = {"Group": "PodGroup"}.get(typed["kind"], typed["kind"])
        return self.server.send("POST", path + query, typed, who=who)

    def patch(self, kind: str, name: str, patch: Object, who: KeyPair) -> Answer:
        return self.server.send(
            "PATCH", f"{PATHS[kind]}/{name}", patch, who=who, kind=MERGE if kind == "KaiGroup" else STRATEGIC
        )


@pytest.fixture(scope="module")
def cluster(server: Server) -> Cluster:
    made = Cluster(server)
    wait_for(
        "the rights are in force", lambda: made.post("Pod", pod("try"), made.outsider, "?dryRun=All").status == 201
    )
    return made


WAYS: dict[str, tuple[str, Callable[[str], Object]]] = {
    "a pod": ("Pod", lambda name: pod(name, QUEUE)),
    "a queue of the other dialect's key": ("Pod", lambda name: pod(name, annotations={"scheduling.volcano.sh/queue-name": "team"})),
    "the project of a pod for KAI": ("Pod", lambda name: pod(name, {"project": "team"}, schedulerName="kai-scheduler")),
    "a replication controller": (
        "ReplicationController",
        lambda name: {"metadata": {"name": name}, "spec": {"selector": {"app": "x"}, "template": template(QUEUE)}},
    ),
    "a pod template": ("PodTemplate", lambda name: {"metadata": {"name": name}, "template": template(QUEUE)}),
    "a deployment": ("Deployment", lambda name: workload(name, QUEUE)),
    "the labels of an owner": ("Deployment", lambda name: workload(name, own=QUEUE)),
    "a replica set": ("ReplicaSet", lambda name: workload(name, QUEUE)),
    "a stateful set": ("StatefulSet", lambda name: workload(name, QUEUE, serviceName="x")),
    "a daemon set": ("DaemonSet", lambda name: workload(name, QUEUE)),
    "a forged revision": (
        "ControllerRevision",
        lambda name: {"metadata": {"name": name}, "revision": 1, "data": {"spec": {"template": template(QUEUE)}}},
    ),
    "a job": ("Job", lambda name: job(name, QUEUE)),
    "a cron job": (
        "CronJob",
        lambda name: {"metadata": {"name": name}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": job("x", QUEUE)["spec"]}}},
    ),
    "a group of KAI": ("KaiGroup", lambda name: {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "team"}}),
    "a group of Volcano": ("VolcanoGroup", lambda name: {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "team"}}),
    "a job of Volcano": (
        "VolcanoJob",
        lambda name: {
            "metadata": {"name": name},
            "spec": {"queue": "team", "minAvailable": 1, "tasks": [{"name": "a", "replicas": 1, "template": template()}]},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_only_who_may_use_a_queue_gets_into_it(cluster: Cluster, way: str) -> None:
    kind, make = WAYS[way]
    refused = cluster.post(kind, make("way"), cluster.outsider, "?dryRun=All")
    assert refused.status == 403, refused.body
    assert (
        'is forbidden: User "outsider" cannot use resource "queues" in API group "scheduling.run.ai" at the cluster scope: '
        'queue "team" is restricted by queue "department"'
    ) in refused.message
    for who in (cluster.member, cluster.controller):
        answer = cluster.post(kind, make("way"), who, "?dryRun=All")
        assert answer.status == 201, answer.body


def test_queues_that_nobody_restricted_are_open(cluster: Cluster) -> None:
    for queue in ("free", "unknown"):
        assert (
            cluster.post("Pod", pod("open", {"kai.scheduler/queue": queue}), cluster.outsider, "?dryRun=All").status
            == 201
        )
    assert cluster.post("Pod", pod("open", {"project": "team"}), cluster.outsider, "?dryRun=All").status == 201


def test_a_right_to_one_queue_is_none_to_another(cluster: Cluster) -> None:
    for labels, notes in (
        ({"kai.scheduler/queue": "department"}, {}),
        ({}, {"scheduling.volcano.sh/queue-name": "batch"}),
        ({"kai.scheduler/queue": "batch"}, {}),
    ):
        assert cluster.post("Pod", pod("other", labels, notes), cluster.member, "?dryRun=All").status == 403


def test_saying_nothing_means_the_default_queue(cluster: Cluster) -> None:
    told = cluster.post("Pod", pod("silent", schedulerName="volcano"), cluster.outsider, "?dryRun=All")
    assert told.status == 403
    assert 'queue "default" is restricted' in told.message
    assert cluster.post("Job", job("silent", schedulerName="volcano"), cluster.outsider, "?dryRun=All").status == 403
    group = {"metadata": {"name": "silent"}, "spec": {"minMember": 1}}
    assert cluster.post("VolcanoGroup", group, cluster.outsider, "?dryRun=All").status == 403
    spoken = pod("spoken", FREE, schedulerName="volcano")
    assert cluster.post("Pod", spoken, cluster.outsider, "?dryRun=All").status == 201


def test_pods_do_not_move_in_later(cluster: Cluster) -> None:
    assert cluster.post("Pod", pod("mover", FREE), cluster.outsider).status == 201
    move = {"metadata": {"labels": QUEUE}}
    for where in ("mover", "mover/status"):
        assert cluster.patch("Pod", where, move, cluster.outsider).status == 403, where
    assert cluster.patch("Pod", "mover", {"metadata": {"labels": {"other": "x"}}}, cluster.outsider).status == 200
    assert cluster.patch("Pod", "mover", move, cluster.member).status == 200
    # It is in: what it runs is no longer for others to say, what is said about it is, and they may take it out.
    image = {"spec": {"containers": [{"name": "main", "image": "registry.example.com/other:1"}]}}
    assert cluster.patch("Pod", "mover", image, cluster.outsider).status == 403
    debugging = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "registry.example.com/debug:1"}]}}
    assert cluster.patch("Pod", "mover/ephemeralcontainers", debugging, cluster.outsider).status == 403
    assert cluster.patch("Pod", "mover", {"metadata": {"labels": {"other": "y"}}}, cluster.outsider).status == 200
    assert cluster.patch("Pod", "mover", {"metadata": {"labels": FREE}}, cluster.outsider).status == 200


def test_workloads_in_a_queue_are_for_those_who_may_use_it(cluster: Cluster) -> None:
    assert cluster.post("Deployment", workload("own", QUEUE), cluster.member).status == 201
    assert cluster.post("Deployment", workload("foreign", FREE), cluster.outsider).status == 201
    moved = {"spec": {"template": {"metadata": {"labels": QUEUE}}}}
    assert cluster.patch("Deployment", "foreign", moved, cluster.outsider).status == 403
    code = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example.com/other:1"}]}}}}
    assert cluster.patch("Deployment", "own", code, cluster.outsider).status == 403
    for where, replicas in (("own", 5), ("own/scale", 6)):
        larger = {"spec": {"replicas": replicas}}
        assert cluster.patch("Deployment", where, larger, cluster.outsider).status == 403, where
        assert cluster.patch("Deployment", where, larger, cluster.controller).status == 200, where
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "own"}
    scaler = {"metadata": {"name": "larger"}, "spec": {"scaleTargetRef": target, "maxReplicas": 100}}
    assert cluster.post("HorizontalPodAutoscaler", scaler, cluster.outsider).status == 403
    assert cluster.post("HorizontalPodAutoscaler", scaler, cluster.member).status == 201
    assert cluster.server.send("DELETE", f"{PATHS['Deployment']}/own", who=cluster.outsider).status == 200


def test_nobody_joins_a_group_or_an_owner_in_the_queue(cluster: Cluster) -> None:
    group = {"metadata": {"name": "gang"}, "spec": {"minMember": 2, "queue": "team"}}
    assert cluster.post("KaiGroup", group, cluster.member).status == 201
    for labels, notes in (
        ({}, {"pod-group-name": "gang"}),
        (FREE, {"pod-group-name": "gang"}),
        ({"spark-app-name": "x", "spark-app-selector": "gang"}, {}),
    ):
        assert cluster.post("Pod", pod("guest", labels, notes), cluster.outsider, "?dryRun=All").status == 403
        assert cluster.post("Pod", pod("guest", labels, notes), cluster.member, "?dryRun=All").status == 201
    owner = cluster.post("Job", job("owner", own=QUEUE), cluster.member)
    child = owned(pod("child", FREE, schedulerName="kai-scheduler"), owner.value, "Job", "batch/v1")
    assert cluster.post("Pod", child, cluster.outsider, "?dryRun=All").status == 403
    assert cluster.post("Pod", child, cluster.controller, "?dryRun=All").status == 201
    moved = {"spec": {"queue": "team"}}
    free = {"metadata": {"name": "free"}, "spec": {"minMember": 1, "queue": "free"}}
    assert cluster.post("KaiGroup", free, cluster.outsider).status == 201
    assert cluster.patch("KaiGroup", "free", moved, cluster.outsider).status == 403


def test_a_group_whose_queue_was_changed_counts_for_its_owner(cluster: Cluster) -> None:
    owner = cluster.post("Job", job("regrouped", FREE), cluster.outsider)
    group = owned(
        {"metadata": {"name": "pg-regrouped"}, "spec": {"minMember": 1, "queue": "team"}},
        owner.value,
        "Job",
        "batch/v1",
    )
    assert cluster.post("KaiGroup", group, cluster.member).status == 201
    child = owned(pod("late", FREE), owner.value, "Job", "batch/v1")
    assert cluster.post("Pod", child, cluster.outsider, "?dryRun=All").status == 403


def test_a_queue_is_open_as_soon_as_its_label_is_gone(cluster: Cluster) -> None:
    """What the server knows of custom resources is never old."""
    in_batch = pod("again", annotations={"scheduling.volcano.sh/queue-name": "batch"})
    for mark, status in ((None, 201), ("true", 403)):
        patch = {"metadata": {"labels": {"allot.dev/restricted": mark}}}
        assert cluster.server.send("PATCH", f"{VOLCANO_QUEUES}/batch", patch, kind=MERGE).status == 200
        assert cluster.post("Pod", in_batch, cluster.outsider, "?dryRun=All").status == status
    refused = cluster.server.send("DELETE", f"{KAI_QUEUES}/department")
    assert (refused.status, "it has child queues [team]" in refused.message) == (403, True)


def test_a_chain_of_owners_is_followed_to_its_end_or_refused(cluster: Cluster) -> None:
    def link(number: int, owner: Object | None) -> Answer:
        made = workload(f"chain-{number}")
        named = made if owner is None else owned(made, owner, "Deployment", "apps/v1")
        return cluster.post("Deployment", named, cluster.outsider)

    last: Object | None = None
    for number in range(9):
        answer = link(number, last)
        assert answer.status == 201, answer.body
        last = answer.value
    answer = link(9, last)
    assert answer.status == 403
    assert "it belongs to more than 8 objects, and queues are restricted" in answer.message
