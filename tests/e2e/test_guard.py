"""`allot guard` as a process: the webhook of an API server.

On a real kube-apiserver where KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd, which checks nothing itself; on
allot's API server always. ALLOT_CONTEST_PODS: how many pods each scheduler gets in the contest, which is then played without
the guard, too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.process.clock import SystemClock
from e2e.components import Component, component, gates
from e2e.contest import contest
from e2e.kube_cluster import NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.servers import ServerProcess
from e2e.test_components import DRIVER, RESOURCE, claim_spec, device_class
from waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLASS, NAMESPACE = "guarded-gpu", "guarded"
CLAIMS = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/allot-guard"
KUBE_SCHEDULER_LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
EXCLUDED = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE]}
RULE = {
    "apiGroups": ["resource.k8s.io"],
    "operations": ["UPDATE"],
    "resources": ["resourceclaims/status"],
    "scope": "Namespaced",
}
SAID = {
    "removed": "no ValidatingWebhookConfiguration has the webhook guard.allot.dev",
    "failing open": "failurePolicy is Ignore, expected Fail",
    "excluding a namespace": 'namespaceSelector is {"matchExpressions"',
    "asked about one version": "no rule covers UPDATE of resourceclaims/status in all versions",
}
# Failovers within seconds, but not because the machine is busy.
FAILOVER = (
    *("--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=500ms"),
    "--write-timeout=5s",
)


def allocation(device: str, pool: str = "n") -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
    return {"devices": {"results": [result]}}


class Cluster:
    """An API server, and how to make and allocate claims on it."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.caller = caller_of(kubeconfig)
        self.caller.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.caller.create(f"{RESOURCE}/deviceclasses", device_class(CLASS))

    def claim(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = self.caller.create(CLAIMS, {"metadata": {"name": name}, "spec": claim_spec(CLASS)})
        return made

    def allocate(self, claim: dict[str, Any], device: str, query: str = "") -> tuple[int, Any]:
        path = f"{CLAIMS}/{claim['metadata']['name']}/status{query}"
        return self.caller.send("PUT", path, {**claim, "status": {"allocation": allocation(device)}})

    def release(self, name: str) -> int:
        merge = "application/merge-patch+json"
        return self.caller.send("PATCH", f"{CLAIMS}/{name}/status", {"status": {"allocation": None}}, merge)[0]

    @contextmanager
    def guard(self, name: str, *options: str) -> Iterator[Component]:
        folder = self.folder / name
        folder.mkdir()
        common = ["--kubeconfig", str(self.kubeconfig), "--port=-1", "--webhook-port=0", "--install"]
        arguments = ["-m", "allot", "guard", *common, *options]
        with Component(Path(sys.executable), arguments, folder) as running:
            yield running

    @contextmanager
    def scheduler(self, name: str, *options: str) -> Iterator[Component]:
        folder = self.folder / f"scheduler-{name}"
        folder.mkdir()
        common = ["--kubeconfig", str(self.kubeconfig), "--port=-1", "--scheduler-name=allot", "--no-leader-elect"]
        with Component(Path(sys.executable), ["-m", "allot", "scheduler", *common, *options], folder) as running:
            yield running

    def await_guard(self, guard: Component) -> None:
        """Until it decides, and the server asks it: servers hear of their webhooks by a watch."""
        guard.wait_for("the guard decides", lambda: "deciding at" in guard.log() or None)
        probe = f"probe-{time.monotonic_ns()}"
        claim = self.claim(probe)
        guard.wait_for("the server finds the guard", lambda: self.allocate(claim, probe)[0] == 200 or None)

        def is_asked() -> bool | None:
            other = self.claim(f"probe-{time.monotonic_ns()}")
            answer = self.allocate(other, probe)[0]
            self.caller.send("DELETE", f"{CLAIMS}/{other['metadata']['name']}")
            return answer == 409 or None

        guard.wait_for("the server asks the guard", is_asked)
        self.caller.send("DELETE", f"{CLAIMS}/{probe}")


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("guarded")
    with kube_apiserver(folder, NO_ACCOUNTS) as kubeconfig:
        yield Cluster(kubeconfig, folder)


def test_kube_apiserver_stores_one_of_two_allocations(kube: Cluster) -> None:
    first, second = kube.claim("first"), kube.claim("second")
    with kube.guard("one") as guard:
        kube.await_guard(guard)
        assert kube.allocate(first, "gpu-0", "?dryRun=All")[0] == 200
        assert kube.allocate(second, "gpu-0")[0] == 200
        status, answer = kube.allocate(first, "gpu-0")
        assert status == 409
        assert f"device {DRIVER}/n/gpu-0 is allocated to claim {NAMESPACE}/second already" in answer
        assert kube.release("second") == 200
        assert kube.allocate(first, "gpu-0")[0] == 200
        kube.release("first")
    assert "Traceback" not in guard.log()


def test_our_server_asks_the_guard_too(tmp_path: Path) -> None:
    with ServerProcess("memory", tmp_path) as server:
        cluster = Cluster(server.kubeconfig, tmp_path)
        one, two = cluster.claim("one"), cluster.claim("two")
        with cluster.guard("guard") as guard:
            guard.wait_for("the guard decides", lambda: "deciding at" in guard.log() or None)
            guard.wait_for("it lets one through", lambda: cluster.allocate(one, "gpu-0")[0] == 200 or None)
            status, answer = cluster.allocate(two, "gpu-0")
            assert status == 409
            assert "device gpu.example.com/n/gpu-0 is allocated to claim guarded/one already" in answer
        # It is gone, and fails closed: the server could not store this if it had not asked.
        status, answer = cluster.allocate(two, "gpu-1")
        assert status == 500
        assert 'failed calling webhook \\"guard.allot.dev\\"' in answer


def test_of_two_processes_one_decides_and_the_other_takes_over_what_it_admitted(kube: Cluster) -> None:
    held, late = kube.claim("held"), kube.claim("late")
    with kube.guard("leader", *FAILOVER) as leader:
        kube.await_guard(leader)
        with kube.guard("standby", *FAILOVER) as standby:
            standby.wait_for("it stands by", lambda: "held by" in standby.log() or None)
            assert kube.allocate(held, "gpu-1")[0] == 200
            os.kill(leader.pid, signal.SIGTERM)
            kube.await_guard(standby)
            # A leader that ends in order leaves nothing to wait for.
            assert "waiting until" not in standby.log()
            assert kube.allocate(late, "gpu-1")[0] == 409
            kube.release("held")


def test_with_its_leader_killed_under_load_no_write_passes_unguarded(kube: Cluster) -> None:
    devices, rivals = 24, 3
    claims = [
        (kube.claim(f"load-{device}-{rival}"), f"load-{device}") for rival in range(rivals) for device in range(devices)
    ]
    answers: Counter[int] = Counter()
    killed, answered_after = threading.Event(), threading.Event()
    with kube.guard("first", *FAILOVER) as first:
        kube.await_guard(first)
        with kube.guard("second", *FAILOVER) as second:
            second.wait_for("it stands by", lambda: "held by" in second.log() or None)

            def load(own: list[tuple[dict[str, Any], str]]) -> None:
                """Try each claim until it is stored or refused."""
                for claim, device in own:
                    status = 0
                    while status not in (200, 409):
                        status = kube.allocate(claim, device)[0]
                        answers[status] += 1
                        if killed.is_set() and status not in (200, 409):
                            answered_after.set()

            threads = [threading.Thread(target=load, args=(claims[place::6],)) for place in range(6)]
            for thread in threads:
                thread.start()
            second.wait_for("some are stored", lambda: answers[200] > devices // 4 or None)
            os.kill(first.pid, signal.SIGKILL)
            killed.set()
            second.wait_for("it takes over", lambda: "deciding at" in second.log() or None)
            for thread in threads:
                thread.join(WAIT_S)
                assert not thread.is_alive()
    holders: Counter[str] = Counter()
    for claim in (kube.caller.get(CLAIMS) or {"items": []})["items"]:
        for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ():
            holders[result["device"]] += result["device"].startswith("load-")
    assert {device: count for device, count in holders.items() if count > 1} == {}
    assert sum(holders.values()) == devices
    assert answered_after.is_set(), f"nothing was refused while nobody decided: {answers}"


def test_certificates_are_replaced_while_it_runs(kube: Cluster) -> None:
    claim, other = kube.claim("before"), kube.claim("after")
    with kube.guard("rotating", "--serving-certificate-validity=9s") as guard:
        kube.await_guard(guard)
        bundle = kube.caller.get(CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
        assert kube.allocate(claim, "gpu-2")[0] == 200

        def replaced() -> bool | None:
            found = kube.caller.get(CONFIGURATION)["webhooks"][0]["clientConfig"]["caBundle"]
            return bundle[:400] not in found or None

        guard.wait_for("the certificate is another one", replaced)
        guard.wait_for("the server trusts it", lambda: kube.allocate(other, "gpu-2")[0] == 409 or None)
        kube.release("before")


def test_without_a_guard_that_answers_allocations_are_stored_if_it_fails_open(kube: Cluster) -> None:
    claim = kube.claim("open")
    with kube.guard("open", "--failure-policy=Ignore") as guard:
        kube.await_guard(guard)
        assert kube.caller.get(CONFIGURATION)["webhooks"][0]["failurePolicy"] == "Ignore"
    assert kube.allocate(claim, "gpu-3")[0] == 200
    kube.release("open")


def test_the_scheduler_starts_beside_another_only_where_allocations_are_guarded(kube: Cluster) -> None:
    kube.caller.send("DELETE", CONFIGURATION)
    spec = {"holderIdentity": "kube-scheduler-0", "leaseDurationSeconds": 3600, "renewTime": SystemClock().now_micro()}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    kube.caller.create(leases, {"metadata": {"name": "kube-scheduler"}, "spec": spec})
    command = [sys.executable, "-m", "allot", "scheduler", "--kubeconfig", str(kube.kubeconfig), "--port=-1"]
    command += ["--scheduler-name=allot", "--no-leader-elect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 3
    assert "kube-scheduler-0 holds the Lease kube-system/kube-scheduler, and nothing prevents the two" in done.stderr
    assert "hint: run `allot guard`" in done.stderr
    with kube.scheduler("nodes", "--beside-kube-scheduler=other-nodes") as running:
        running.wait_for("it works", lambda: "ready" in running.log() or None)
    with kube.scheduler("unguarded", "--beside-kube-scheduler=unguarded") as running:
        running.wait_for("it works", lambda: "ready" in running.log() or None)
        assert "warning: kube-scheduler-0 also schedules: devices may be allocated twice" in running.log()
    with kube.guard("beside") as guard:
        guard.wait_for("the guard decides", lambda: "deciding at" in guard.log() or None)
        with kube.scheduler("guarded") as running:
            running.wait_for("it works", lambda: "ready" in running.log() or None)
    kube.caller.send("DELETE", f"{leases}/kube-scheduler")


def test_the_scheduler_notices_another_that_comes_later(kube: Cluster) -> None:
    kube.caller.send("DELETE", CONFIGURATION)
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    spec = {"holderIdentity": "kube-scheduler-1", "leaseDurationSeconds": 3600, "renewTime": SystemClock().now_micro()}
    with kube.scheduler("alone") as alone, kube.scheduler("told", "--beside-kube-scheduler=unguarded") as told:
        for running in (alone, told):
            running.wait_for("it works", lambda log=running.log: "ready" in log() or None)
        kube.caller.create(leases, {"metadata": {"name": "kube-scheduler"}, "spec": spec})
        assert alone.wait() == 3
        assert (
            "kube-scheduler-1 holds the Lease kube-system/kube-scheduler, and nothing prevents the two" in alone.log()
        )
        told.wait_for("it warns", lambda: "warning: kube-scheduler-1 also schedules" in told.log() or None)
    events = kube.caller.get("/apis/events.k8s.io/v1/namespaces/kube-system/events")["items"]
    notes = [each["note"] for each in events if each["reason"] == "AnotherScheduler"]
    assert any("nothing prevents the two" in note for note in notes) and any(
        "may be allocated twice" in note for note in notes
    )
    kube.caller.send("DELETE", f"{leases}/kube-scheduler")


EXEMPTIONS = {
    "removed": None,
    "failing open": {"failurePolicy": "Ignore"},
    "excluding a namespace": {"namespaceSelector": {"matchExpressions": [EXCLUDED]}},
    "asked about one version": {"rules": [{**RULE, "apiVersions": ["v1"]}]},
}


@pytest.fixture(scope="module")
def upstream(kube: Cluster) -> Iterator[Component]:
    """A real kube-scheduler beside the API server, which holds its Lease."""
    binary, folder = component("kube-scheduler"), kube.folder / "kube-scheduler"
    folder.mkdir()
    delegated = [f"--{use}-kubeconfig={kube.kubeconfig}" for use in ("authentication", "authorization")]
    with Component(
        binary, ["--kubeconfig", str(kube.kubeconfig), "--secure-port=0", *delegated, *gates(binary)], folder
    ) as running:
        running.wait_for("kube-scheduler leads", lambda: kube.caller.get(KUBE_SCHEDULER_LEASE))
        yield running


@pytest.mark.parametrize("what", EXEMPTIONS)
def test_beside_kube_scheduler_a_guard_that_goes_or_exempts_anything_stops_the_scheduler(
    what: str, kube: Cluster, upstream: Component
) -> None:
    kube.caller.send("DELETE", CONFIGURATION)
    with kube.guard(f"until-{what}") as guard:
        kube.await_guard(guard)
    # The guard has ended: its configuration stays as somebody leaves it.
    with kube.scheduler(f"until-{what}") as running:
        running.wait_for("it works", lambda: "ready" in running.log() or None)
        changes = EXEMPTIONS[what]
        if changes is None:
            assert kube.caller.send("DELETE", CONFIGURATION)[0] == 200
        else:
            found = kube.caller.get(CONFIGURATION)
            found["webhooks"][0].update(changes)
            assert kube.caller.send("PUT", CONFIGURATION, found)[0] == 200
        assert running.wait() == 3
    expected = "nothing prevents the two from allocating a device twice: "
    expected += f"ValidatingWebhookConfiguration allot-guard: {SAID[what]}" if changes else SAID[what]
    assert expected in running.log()
    events = kube.caller.get("/apis/events.k8s.io/v1/namespaces/kube-system/events")["items"]
    assert any(SAID[what] in each["note"] for each in events if each["reason"] == "AnotherScheduler")
    assert "Traceback" not in running.log() and "Traceback" not in upstream.log()


def test_a_guard_that_installs_its_configuration_lets_nobody_exempt_anything(kube: Cluster) -> None:
    kube.caller.send("DELETE", CONFIGURATION)
    with kube.guard("keeper") as guard:
        kube.await_guard(guard)
        found = kube.caller.get(CONFIGURATION)
        found["webhooks"][0].update(namespaceSelector={"matchExpressions": [EXCLUDED]}, failurePolicy="Ignore")
        assert kube.caller.send("PUT", CONFIGURATION, found)[0] == 200

        def restored() -> bool | None:
            webhook = kube.caller.get(CONFIGURATION)["webhooks"][0]
            return (webhook["namespaceSelector"], webhook["failurePolicy"]) == ({}, "Fail") or None

        guard.wait_for("it is as it was", restored)
        assert kube.caller.send("DELETE", CONFIGURATION)[0] == 200
        guard.wait_for("it is made again", lambda: kube.caller.get(CONFIGURATION))


CONTEST_PODS = int(os.environ.get("ALLOT_CONTEST_PODS", "0"))


@pytest.mark.parametrize("is_guarded", [True, False] if CONTEST_PODS else [True])
def test_beside_kube_scheduler_no_device_is_in_two_claims(is_guarded: bool, tmp_path: Path) -> None:
    component("kube-scheduler")
    with ExitStack() as stack:
        kubeconfig = stack.enter_context(kube_apiserver(tmp_path, NO_ACCOUNTS))
        if is_guarded:
            made = Cluster(kubeconfig, tmp_path)
            made.await_guard(stack.enter_context(made.guard("guard")))
        found = contest(kubeconfig, tmp_path, CONTEST_PODS or 12, is_guarded=is_guarded)
    sys.stdout.write(f"{found}\n")
    assert not is_guarded or found.episodes == []
