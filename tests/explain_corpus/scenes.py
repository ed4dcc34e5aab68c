"""Random small clusters with a pod that can be placed, to plant faults in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

from explain_corpus.objects import (
    DRIVER,
    JSON,
    condition,
    device,
    device_class,
    devices_of,
    event,
    gpu,
    holder,
    made_for,
    node,
    pod,
    request,
    resource_slice,
    template,
    thing,
    with_claim,
)
from explain_corpus.objects import claim as claim_of
from explain_corpus.objects import namespace as namespace_of

TEMPLATE, CLAIM, EXTENDED = "template", "claim", "extended"
PRODUCTS = (
    ("NVIDIA A100-SXM4-80GB", "80Gi"),
    ("NVIDIA H100 80GB HBM3", "81559Mi"),
    ("NVIDIA L4", "23034Mi"),
    ("NVIDIA GB200", "189471Mi"),
)
RESOURCE = "nvidia.com/gpu"
NIC = "nic.example.com"
# How likely something is there that makes no difference.
_TRIMMING = 0.3


class Scene:
    """A cluster. The pod that is asked about asks for `count` GPUs of one class, in one of three styles."""

    def __init__(self, random: Random, style: str = "") -> None:
        self.random = random
        self.style = style or random.choice((TEMPLATE, TEMPLATE, CLAIM))
        self.namespace = random.choice(("default", "team-a"))
        self.name = random.choice(("train", "vllm-0", "notebook-7"))
        self.target = f"pod/{self.name}"
        self.gates: tuple[str, ...] = ()
        self.class_name = random.choice((DRIVER, "datacenter-gpu"))
        self.template_name = random.choice(("one-gpu", "gpu-claim-template"))
        self.claim_name = f"{self.name}-gpu-q4t9z" if self.style == TEMPLATE else "shared-gpu"
        self.product, self.memory = random.choice(PRODUCTS)
        self.nodes = [f"gpu-{chr(97 + number)}" for number in range(random.randint(1, 3))]
        self.each = random.randint(1, 4)
        self.count = random.randint(1, self.each)
        # A device of each node may be held by somebody as long as enough are left.
        self.held = [name for name in self.nodes if self.each > self.count and random.random() < 0.3]
        self.others = [f"cpu-{number}" for number in range(random.randint(0, 2))]
        self.objects: list[JSON] = [namespace_of("default"), namespace_of("team-a"), namespace_of("team-b")]
        self._build()
        for trimming in (
            self._second_request,
            self._selector_that_all_satisfy,
            self._constraint_that_holds,
            self._wish_that_is_met,
            self._old_message,
            self._neighbours,
            self._nodes_that_do_not_matter,
        ):
            if random.random() < _TRIMMING:
                trimming()

    # --- what makes no difference ---

    def _second_request(self) -> None:
        """A NIC beside the GPUs, of which each node has enough."""
        if self.style == EXTENDED:
            return
        self.add(device_class(NIC, f"device.driver == '{NIC}'"))
        for name in self.nodes:
            self.add(resource_slice(name, [device(f"nic-{number}", {"speed": 100}) for number in range(4)], driver=NIC))
        for spec in self.specs:
            spec["devices"]["requests"].append(request("nic", NIC))

    def _selector_that_all_satisfy(self) -> None:
        if self.style != EXTENDED:
            self.select(f"device.attributes['{DRIVER}'].type == 'gpu'")

    def _constraint_that_holds(self) -> None:
        for spec in self.specs:
            spec["devices"]["constraints"] = [{"requests": ["gpu"], "matchAttribute": f"{DRIVER}/type"}]

    def _wish_that_is_met(self) -> None:
        if self.random.random() < 0.5:
            self.pod["spec"]["nodeSelector"] = {"accelerator": "nvidia"}
        else:
            term = {"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            self.pod["spec"]["affinity"] = {"nodeAffinity": required}

    def _old_message(self) -> None:
        said = self.random.choice(
            (
                "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
                "0/3 nodes are available: 3 cannot allocate all claims.",
                "0/1 nodes are available: 1 node(s) had untolerated taint {example.com/old: }.",
            )
        )
        self.pod["status"]["conditions"] = [condition(said)]
        self.add(event(self.pod, "FailedScheduling", said, source="default-scheduler"))

    def _neighbours(self) -> None:
        """Pods that run, wait or have ended, and have nothing to do with devices."""
        for name in self.nodes:
            self.add(pod(f"log-{name}", "kube-system", on=name, requests={"cpu": "100m"}, priority=2000000000))
        self.add(pod("other", self.namespace, requests={"cpu": "500"}))
        self.add(pod("done", self.namespace, on=self.nodes[0], status={"phase": "Succeeded"}))

    def _nodes_that_do_not_matter(self) -> None:
        """Nodes without devices that are out of reach for many reasons."""
        taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
        self.add(node("control-plane", taints=[taint]), node("drained", cordoned=True), node("lost", ready=False))

    def _build(self) -> None:
        for name in self.nodes:
            self.add(node(name, {"topology.kubernetes.io/zone": "a", "accelerator": "nvidia"}))
            devices = [
                gpu(number, self.product, self.memory, attributes={"index": number, "board": f"b{number}"})
                for number in range(self.each)
            ]
            self.add(resource_slice(name, devices))
        for name in self.others:
            self.add(node(name, {"topology.kubernetes.io/zone": self.random.choice("ab")}))
        extended = {"extendedResourceName": RESOURCE} if self.style == EXTENDED else {}
        self.add(device_class(self.class_name, **extended))
        for name in self.held:
            self.add(*holder(f"old-{name}", name, "gpu-0", namespace=self.namespace))
        self.add_pod()

    def add_pod(self) -> None:
        """The pod that is asked about, with what it needs."""
        spec = devices_of(request("gpu", self.class_name, count=self.count))
        requests = {"cpu": "2", "memory": "4Gi"}
        if self.style == EXTENDED:
            self.add(pod(self.name, self.namespace, requests=requests | {RESOURCE: str(self.count)}))
        elif self.style == CLAIM:
            self.add(pod(self.name, self.namespace, claims={"gpu": self.claim_name}, requests=requests))
            self.add(claim_of(self.claim_name, spec, self.namespace))
        else:
            self.add(template(self.template_name, spec, self.namespace))
            waiting = pod(self.name, self.namespace, templates={"gpu": self.template_name}, requests=requests)
            self.add(*with_claim(waiting, copy.deepcopy(spec)))

    # --- what faults do ---

    def add(self, *objects: JSON) -> None:
        """More objects."""
        self.objects += objects

    def drop(self, kind: str, name: str = "") -> None:
        """Without an object, or all of a kind."""
        self.objects = [
            each for each in self.objects if each["kind"] != kind or (name and each["metadata"]["name"] != name)
        ]

    def get(self, kind: str, name: str) -> JSON:
        """An object."""
        return next(each for each in self.objects if each["kind"] == kind and each["metadata"]["name"] == name)

    def all(self, kind: str) -> list[JSON]:
        """All objects of a kind."""
        return [each for each in self.objects if each["kind"] == kind]

    @property
    def pod(self) -> JSON:
        """The pod that is asked about."""
        return self.get("Pod", self.name)

    @property
    def specs(self) -> list[JSON]:
        """The spec of the pod's claim, wherever it is written."""
        found = [each["spec"]["spec"] for each in self.all("ResourceClaimTemplate") if self._is_mine(each)]
        return found + [
            each["spec"] for each in self.all("ResourceClaim") if each["metadata"]["name"] == self.claim_name
        ]

    def _is_mine(self, object_: JSON) -> bool:
        return bool(object_["metadata"]["name"] == self.template_name)

    def edit(self, change: Callable[[JSON], Any]) -> None:
        """Change the claim's first request, in the template and in the claim."""
        for spec in self.specs:
            change(spec["devices"]["requests"][0]["exactly"])

    def select(self, *expressions: str) -> None:
        """Selectors for the request."""
        found = [{"cel": {"expression": expression}} for expression in expressions]
        self.edit(lambda exactly: exactly.update(selectors=copy.deepcopy(found)))

    @property
    def slices(self) -> list[JSON]:
        """The slices with GPUs."""
        return [each for each in self.all("ResourceSlice") if each["spec"]["driver"] == DRIVER]

    @property
    def gpu_nodes(self) -> list[JSON]:
        """The nodes with GPUs."""
        return [self.get("Node", name) for name in self.nodes]

    def free_everything(self) -> None:
        """Without those who hold something from the beginning."""
        gone = {f"old-{name}" for name in self.held}
        self.objects = [
            each
            for each in self.objects
            if each["metadata"]["name"] not in gone
            and not any(owner["name"] in gone for owner in each["metadata"].get("ownerReferences", ()))
        ]
        self.held = []

    def fill(self, *, priority: int = 0, namespace: str = "", prefix: str = "busy", **fields: Any) -> list[str]:
        """Every GPU is held by a pod; their names."""
        self.free_everything()
        names = []
        for where in self.nodes:
            for number in range(self.each):
                name = f"{prefix}-{where}-{number}"
                names.append(name)
                self.add(
                    *holder(
                        name, where, f"gpu-{number}", namespace=namespace or self.namespace, priority=priority, **fields
                    )
                )
        return names


def group_of(name: str, namespace: str, min_count: int, **spec: Any) -> JSON:
    """A PodGroup."""
    policy = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    return thing("scheduling.k8s.io/v1beta1", "PodGroup", name, namespace, spec=policy | spec)


def owned(name: str, entry: str, namespace: str) -> JSON:
    """The metadata of a claim that was made for a pod."""
    return made_for(name, entry, namespace)
