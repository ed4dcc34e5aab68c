"""kube-scheduler and allot's scheduler on the same devices of a real kube-apiserver: how often a device is in two claims."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from e2e.components import Caller, Component, component, gates
from e2e.kube_cluster import caller_of
from e2e.test_components import DRIVER, RESOURCE, add_node, claim_spec, device_class
from waiting import WAIT_S

CLASS, NAMESPACE, NODE, DEVICES = "contested-gpu", "contest", "contested", 8
CLAIMS = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_END = "the-end"
CONTEST_S = 20 * WAIT_S
_KUBE_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: "{kubeconfig}", qps: 1000, burst: 2000}}
"""


class Outcome(msgspec.Struct, kw_only=True):
    """What was seen. episodes: (device, claims) each time a device came to be in more than one claim."""

    bound: dict[str, int]
    episodes: list[tuple[str, tuple[str, ...]]]
    seconds: float


def gpus(node: str, count: int) -> dict[str, Any]:
    """A slice with so many devices."""
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{number}"} for number in range(count)],
        },
    }


class DoubleAllocations:
    """Follows every stored state of the claims."""

    def __init__(self, caller: Caller, namespace: str = NAMESPACE) -> None:
        self._caller = caller
        self._claims = f"{RESOURCE}/namespaces/{namespace}/resourceclaims"
        self._of_claim: dict[str, tuple[str, ...]] = {}
        self._holders: dict[str, set[str]] = defaultdict(set)
        self.episodes: list[tuple[str, tuple[str, ...]]] = []
        self._is_whole = False
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """From now on."""
        self._thread.start()

    def finish(self) -> list[tuple[str, tuple[str, ...]]]:
        """What was found, when everything stored so far has been seen: the last is a claim made here."""
        self._caller.create(self._claims, {"metadata": {"name": _END}, "spec": claim_spec(CLASS)})
        self._thread.join(WAIT_S)
        assert self._is_whole, "the watch does not tell the last claim, or has ended before"
        return self.episodes

    def _follow(self) -> None:
        # While a guard takes over, nothing is told for a while.
        for event in self._caller.stream(f"{self._claims}?watch=1&timeoutSeconds={int(CONTEST_S)}", CONTEST_S):
            if event["object"]["metadata"]["name"] == _END:
                self._is_whole = True
                return
            self._see(event)

    def _see(self, event: Any) -> None:
        claim, name = event["object"], event["object"]["metadata"]["name"]
        found = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
        now = () if event["type"] == "DELETED" else tuple(result["device"] for result in found)
        before = self._of_claim.get(name, ())
        self._of_claim[name] = now
        for device in before:
            self._holders[device].discard(name)
        for device in now:
            self._holders[device].add(name)
            if device not in before and len(self._holders[device]) > 1:
                self.episodes.append((device, tuple(sorted(self._holders[device]))))


def contest(kubeconfig: Path, folder: Path, pods: int, *, is_guarded: bool) -> Outcome:
    """So many pods for each scheduler, each with a device; who is bound is deleted at once and makes room."""
    caller, python = caller_of(kubeconfig), Path(sys.executable)
    caller.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    caller.create(f"{RESOURCE}/deviceclasses", device_class(CLASS))
    add_node(caller, NODE)
    caller.create(f"{RESOURCE}/resourceslices", gpus(NODE, DEVICES))
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": claim_spec(CLASS)}}
    caller.create(f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaimtemplates", template)
    manager, kube_scheduler = component("kube-controller-manager"), component("kube-scheduler")
    configuration = folder / "scheduler.yaml"
    configuration.write_text(_KUBE_SCHEDULER.format(kubeconfig=kubeconfig))
    delegated = [f"--{use}-kubeconfig={kubeconfig}" for use in ("authentication", "authorization")]
    with ExitStack() as stack:
        arguments = [
            *("--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0"),
            *("--controllers=resourceclaim-controller,garbage-collector-controller", "--kube-api-qps=1000"),
            *gates(manager),
        ]
        stack.enter_context(Component(manager, arguments, folder))
        arguments = ["--config", str(configuration), "--secure-port=0", *delegated, *gates(kube_scheduler)]
        upstream = stack.enter_context(Component(kube_scheduler, arguments, folder))
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
        upstream.wait_for("kube-scheduler leads", lambda: caller.get(lease))
        beside = "guarded" if is_guarded else "unguarded"
        arguments = ["-m", "allot", "scheduler", "--kubeconfig", str(kubeconfig), "--scheduler-name=allot", "--port=-1"]
        ours = Component(python, [*arguments, f"--beside-kube-scheduler={beside}", "--log-level=warning"], folder)
        stack.enter_context(ours)
        ours.wait_for("our scheduler is ready", lambda: "ready" in ours.log() or None)
        seen = DoubleAllocations(caller)
        seen.start()
        started = time.monotonic()
        bound = _play(caller, pods, ours)
        seconds = time.monotonic() - started
        return Outcome(bound=bound, episodes=seen.finish(), seconds=seconds)


def _play(caller: Caller, pods: int, ours: Component) -> dict[str, int]:
    names = ("default-scheduler", "allot")
    for number in range(pods):
        for name in names:
            caller.create(PODS, _pod(f"{name}-{number}", name))
    bound, until = dict.fromkeys(names, 0), time.monotonic() + CONTEST_S
    while sum(bound.values()) < 2 * pods:
        assert time.monotonic() < until, f"bound so far: {bound}\n{ours.log()[-3000:]}"
        for pod in (caller.get(PODS) or {"items": []})["items"]:
            if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                caller.send("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
                bound[pod["spec"]["schedulerName"]] += 1
        time.sleep(0.05)
    return bound


def _pod(name: str, scheduler: str) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:v1", "resources": {"claims": [{"name": "gpu"}]}}
    claim = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    spec = {"schedulerName": scheduler, "containers": [container], "resourceClaims": [claim]}
    return {"metadata": {"name": name}, "spec": spec}
