"""`allot controllers` in place of kube-controller-manager for workloads: on a real kube-apiserver as on allot's."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.components import Caller, Component
from e2e.kube_cluster import NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.servers import ServerProcess
from e2e.test_components import add_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMES = (
    *("deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "disruption"),
    *("job", "cronjob", "ttl-after-finished", "endpointslice", "endpoints", "garbage-collector"),
)
MERGE = "application/merge-patch+json"
APPS = "/apis/apps/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODES = ("one", "two")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CORE = "/api/v1/namespaces/default"


def template(app: str, image: str) -> dict[str, Any]:
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": image}]}
    return {"metadata": {"labels": {"app": app}}, "spec": spec}


def workload(app: str, **spec: Any) -> dict[str, Any]:
    whole = {"selector": {"matchLabels": {"app": app}}, "template": template(app, "app:1"), **spec}
    return {"metadata": {"name": app}, "spec": whole}


class Site:
    """An API server, our scheduler and controllers, and a kubelet that does everything at once."""

    def __init__(self, caller: Caller, scheduler: Component, controllers: list[Component]) -> None:
        self.caller = caller
        self.controllers = controllers
        self._scheduler = scheduler

    def pods(self, app: str = "") -> list[Any]:
        found: list[Any] = (self.caller.get(PODS) or {"items": []})["items"]
        return [pod for pod in found if not app or pod["metadata"]["labels"]["app"] == app]

    def work(self) -> None:
        """What kubelets would do."""
        for pod in self.pods():
            path, status = f"{PODS}/{pod['metadata']['name']}", pod["status"]
            if "deletionTimestamp" in pod["metadata"]:
                self.caller.send("DELETE", path, {"gracePeriodSeconds": 0})
            elif pod["spec"].get("nodeName") and status["phase"] == "Pending":
                ready = [*status.get("conditions", ()), {"type": "Ready", "status": "True"}]
                address = f"10.0.0.{pod['metadata']['resourceVersion'][-2:].lstrip('0') or '100'}"
                running = {"phase": "Running", "conditions": ready, "podIP": address, "podIPs": [{"ip": address}]}
                self.caller.send("PATCH", f"{path}/status", {"status": running}, MERGE)
            elif status["phase"] == "Running" and "job-name" in pod["metadata"]["labels"]:
                self.caller.send("PATCH", f"{path}/status", {"status": {"phase": "Succeeded"}}, MERGE)

    def until(self, what: str, look: Callable[[], Any]) -> Any:
        def both() -> Any:
            self.work()
            return look() or None

        return self._scheduler.wait_for(what, both)

    def get(self, plural: str, name: str) -> Any:
        return self.caller.get(f"{APPS}/{plural}/{name}")

    def patch(self, plural: str, name: str, spec: dict[str, Any]) -> None:
        status, value = self.caller.send("PATCH", f"{APPS}/{plural}/{name}", {"spec": spec}, MERGE)
        assert status == 200, value

    def images(self, app: str) -> list[str]:
        return [pod["spec"]["containers"][0]["image"] for pod in self.pods(app)]


@pytest.fixture(scope="module", params=["allot", "kube-apiserver"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "allot":
            server = stack.enter_context(ServerProcess("memory", folder))
            caller, kubeconfig = caller_of(server.kubeconfig), server.kubeconfig
        else:
            kubeconfig = stack.enter_context(kube_apiserver(folder, NO_ACCOUNTS))
            caller = caller_of(kubeconfig)
        for name in NODES:
            add_node(caller, name)
        common = ["--kubeconfig", str(kubeconfig), "--port", "-1"]
        names = ",".join(f"{name}-controller" for name in NAMES)

        def start(name: str, *arguments: str) -> Component:
            logs = folder / name
            logs.mkdir()
            return stack.enter_context(Component(Path(sys.executable), ["-m", "allot", *arguments, *common], logs))

        scheduler = start("scheduler", "scheduler", "--no-leader-elect")
        # Of two, one leads.
        two = [start(name, "controllers", "--controllers", names) for name in ("first", "second")]
        yield Site(caller, scheduler, two)


def test_workloads_run_update_and_go(site: Site) -> None:
    caller = site.caller
    caller.create(f"{APPS}/deployments", workload("web", replicas=4))
    caller.create(f"{APPS}/statefulsets", workload("db", replicas=3, serviceName="db"))
    caller.create(f"{APPS}/daemonsets", workload("agent"))
    budget = {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}
    caller.create(BUDGETS, {"metadata": {"name": "web"}, "spec": budget})

    def are_complete(image: str) -> bool:
        web, db, agent = (
            (site.get(*what) or {}).get("status", {})
            for what in (("deployments", "web"), ("statefulsets", "db"), ("daemonsets", "agent"))
        )
        found = [site.images(app) == [image] * count for app, count in (("web", 4), ("db", 3), ("agent", len(NODES)))]
        return (
            all(found)
            and (web.get("availableReplicas"), web.get("updatedReplicas")) == (4, 4)
            and (db.get("availableReplicas"), db.get("updatedReplicas")) == (3, 3)
            and db.get("currentRevision") == db.get("updateRevision")
            and (agent.get("numberAvailable"), agent.get("updatedNumberScheduled")) == (len(NODES), len(NODES))
        )

    site.until("everything runs", lambda: are_complete("app:1"))
    web = site.get("deployments", "web")
    assert web["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    conditions = {one["type"]: (one["status"], one["reason"]) for one in web["status"]["conditions"]}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert [pod["metadata"]["name"] for pod in site.pods("db")] == ["db-0", "db-1", "db-2"]
    assert sorted(pod["spec"]["nodeName"] for pod in site.pods("agent")) == sorted(NODES)
    told = site.until("the budget knows", lambda: _allowed(caller, 2))
    assert (told["expectedPods"], told["desiredHealthy"], told["currentHealthy"]) == (4, 2, 4)

    for plural, app in (("deployments", "web"), ("statefulsets", "db"), ("daemonsets", "agent")):
        site.patch(plural, app, {"template": template(app, "app:2")})
    site.until("everything is updated", lambda: are_complete("app:2"))
    sets = caller.get(f"{APPS}/replicasets")["items"]
    sizes = {
        each["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: each["spec"]["replicas"] for each in sets
    }
    assert sizes == {"1": 0, "2": 4}
    revisions = caller.get(f"{APPS}/controllerrevisions")["items"]
    numbers = sorted((each["metadata"]["ownerReferences"][0]["kind"], each["revision"]) for each in revisions)
    assert numbers == [("DaemonSet", 1), ("DaemonSet", 2), ("StatefulSet", 1), ("StatefulSet", 2)]

    site.patch("statefulsets", "db", {"replicas": 1})
    site.patch("deployments", "web", {"replicas": 1})
    site.until("there are fewer", lambda: (len(site.pods("db")), len(site.pods("web"))) == (1, 1))
    for plural, app in (("deployments", "web"), ("statefulsets", "db"), ("daemonsets", "agent")):
        assert caller.send("DELETE", f"{APPS}/{plural}/{app}", {"propagationPolicy": "Background"})[0] == 200
    site.until("everything is gone", lambda: not site.pods() and not caller.get(f"{APPS}/replicasets")["items"])


def _allowed(caller: Caller, count: int) -> Any:
    status = (caller.get(f"{BUDGETS}/web") or {}).get("status") or {}
    return status if status.get("disruptionsAllowed") == count else None


def job(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def test_jobs_services_and_replication_controllers_run_there_too(site: Site) -> None:
    caller = site.caller
    caller.create(JOBS, job("count", completions=5, parallelism=2, completionMode="Indexed"))
    caller.create(JOBS, job("brief", ttlSecondsAfterFinished=0))
    selector = {"selector": {"app": "old"}}
    old = {"replicas": 2, **selector, "template": template("old", "app:1")}
    caller.create(f"{CORE}/replicationcontrollers", {"metadata": {"name": "old"}, "spec": old})
    caller.create(f"{CORE}/services", {"metadata": {"name": "old"}, "spec": {**selector, "ports": [{"port": 80}]}})

    def is_complete() -> Any:
        status = (caller.get(f"{JOBS}/count") or {}).get("status", {})
        return status if status.get("completionTime") else None

    status = site.until("the job is complete", is_complete)
    assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (5, "0-4", 0)
    assert {one["type"] for one in status["conditions"]} == {"SuccessCriteriaMet", "Complete"}
    site.until("the other job has expired", lambda: caller.get(f"{JOBS}/brief") is None)

    def has_endpoints() -> bool:
        slices = (caller.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices") or {"items": []})["items"]
        mine = [one for one in slices if one["metadata"]["labels"]["kubernetes.io/service-name"] == "old"]
        return sum(len(one.get("endpoints") or ()) for one in mine) == 2

    site.until("the service has its endpoints", has_endpoints)
    for path in (f"{JOBS}/count", f"{CORE}/replicationcontrollers/old", f"{CORE}/services/old"):
        assert caller.send("DELETE", path, {"propagationPolicy": "Background"})[0] == 200
    site.until("everything is gone", lambda: not site.pods())


def test_when_the_leader_is_killed_another_goes_on(site: Site) -> None:
    """The last test of the module: one of the two is gone afterwards."""
    caller = site.caller
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/allot-controllers"

    def holder() -> str:
        return str(((caller.get(lease) or {}).get("spec") or {}).get("holderIdentity") or "")

    first = site.until("somebody leads", holder)
    caller.create(JOBS, job("long", completions=20, parallelism=3))
    site.until("it has begun", lambda: (caller.get(f"{JOBS}/long")["status"]).get("succeeded", 0) >= 2)
    # Only who leads says what runs.
    (leader,) = [each for each in site.controllers if "running: " in each.log()]
    os.kill(leader.pid, signal.SIGKILL)
    site.until("another leads", lambda: holder() not in ("", first))
    status = site.until("the job is complete", lambda: _complete(caller))
    assert status["succeeded"] == 20 and not status.get("failed") and status["uncountedTerminatedPods"] == {}
    finalizers = [
        pod["metadata"].get("finalizers") for pod in site.pods() if pod["metadata"]["name"].startswith("long-")
    ]
    assert len(finalizers) == 20 and not any(finalizers)


def _complete(caller: Caller) -> Any:
    status = caller.get(f"{JOBS}/long")["status"]
    return status if status.get("completionTime") else None
