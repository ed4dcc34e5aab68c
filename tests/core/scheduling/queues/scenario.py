"""Cases of the vectors as clusters: nodes, queues and jobs are made, rounds are run on them, and states compared with those
that upstream expects, whatever equal nodes are called."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import count
from typing import Any

from msgspec.structs import replace

from allot.core.features import DEFAULT_GATES
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queues.amounts import ONE, UNLIMITED
from allot.core.scheduling.queues.jobs import Job, Near, Part, Task
from allot.core.scheduling.queues.model import Queue, Quota
from allot.core.scheduling.queues.rounds import STALE_AFTER_S, Round, stale
from allot.core.scheduling.queues.takeover import Takeover
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.settings import Policy, ResourceWeight, Settings, Strategy, Weights

from .symmetry import is_symmetric

GPU = "nvidia.com/gpu"
SHARE_CLASS = "shared-gpu"
DRIVER = "gpu.nvidia.com"
NOW = 10_000_000.0
DEFAULT_MEMORY_MIB = 100
MILLI = 1000
# Where nothing else decides: the fullest node by what the pod asks for, as KAI's plugin nodeplacement.
_PACKING = Settings(
    policy=Policy.PACK,
    strategy=Strategy.MOST_ALLOCATED,
    strategy_resources=(ResourceWeight(GPU, 100), ResourceWeight("cpu"), ResourceWeight("memory")),
    weights=Weights(
        taint_toleration=0,
        pod_topology_spread=0,
        dynamic_resources=0,
        balanced_allocation=0,
        image_locality=0,
        node_affinity=0,
    ),
    default_spreads=(),
    topology_placements=True,
)
_SPREADING = replace(_PACKING, policy=Policy.SPREAD, strategy=Strategy.LEAST_ALLOCATED)
_LEAVING = ("Releasing", "StuckInReleasing")
_ACTIVE = ("Allocated", "Pipelined", "Binding", "Bound", "Running")
_FINISHED = ("Succeeded", "Failed")


class Unsupported(Exception):
    """What the case needs is not there yet."""


class Scenario:
    """One case."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = self.first = case
        self.states: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.tasks: dict[str, Task] = {}
        self.jobs: dict[str, Job] = {}
        self.stale_since: dict[str, float] = {}
        self.grace: dict[str, float] = {}
        self.evictions = 0
        self.default_grace = STALE_AFTER_S
        self._settings = _settings(case.get("plugins", ()))
        self._shares_devices = self._needs_shares()
        self._uids = count()
        self._claims_of: dict[str, list[dict[str, Any]]] = {}
        self._make()

    # --- what is there ---

    def _needs_shares(self) -> bool:
        """Whether some GPU is used in parts, so that all have to be devices."""
        for job in self.case["jobs"]:
            amounts = [job.get("gpus", 0), *(pod.get("gpus", 0) for pod in job["pods"])]
            if "gpuMemoryMiB" in job or any(amount != int(amount) for amount in amounts):
                return True
        return False

    def _make(self) -> None:
        # Devices that are held already: those of groups by node and name, others counted by pool.
        self._groups: dict[str, dict[str, int]] = {}
        self._used: dict[str, Iterator[int]] = {}
        self.cluster = Cluster()
        self.claims = Claims(DEFAULT_GATES, changed=self.cluster.device_changes.add)
        self.cluster.devices = self.claims
        self._held: set[str] = set()
        self._by_key: dict[str, Task] = {}
        self.cluster.listen(self._placed, self._left)
        self.tree = QueueTree()
        for number, row in enumerate(self.case["queues"]):
            self.tree.put(_queue(row, number))
        self._make_nodes()
        self._make_devices()
        for number, row in enumerate(self.case["jobs"]):
            self._make_job(row, number)

    def _make_nodes(self) -> None:
        total = {"cpu": 0, "memory": 0, "gpu": 0}
        for name, row in self.case["nodes"].items():
            gpus = row.get("gpus", 0)
            cores = row.get("cpu", 20_000)
            memory = _bytes(row.get("memory", 20 * 10**9))
            allocatable = {"cpu": f"{int(cores * MILLI)}m", "memory": str(memory), "pods": str(row.get("pods", 110))}
            total["cpu"] += int(cores * MILLI) * ONE
            total["memory"] += memory * ONE
            total["gpu"] += gpus * ONE
            if gpus and not self._shares_devices:
                allocatable[GPU] = str(gpus)
            for profile, number in row.get("mig", {}).items():
                allocatable[profile] = str(number)
                total["gpu"] += _slices(profile) * number * ONE
            labels = {"kubernetes.io/hostname": name, "kai.scheduler/type": name, **row.get("labels", {})}
            body = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
            self.cluster.put_node(decode(body, core_v1.Node).object)
        for row in self.case.get("dra", {}).get("slices", ()):
            total["gpu"] += row["devices"] * ONE if "gpu" in row["class"] else 0
        self.tree.set_total(total)

    def _make_devices(self) -> None:
        if self._shares_devices:
            self.claims.put_class(decode({"metadata": {"name": SHARE_CLASS}, "spec": {}}, api.DeviceClass).object)
            for name, row in self.case["nodes"].items():
                devices = [
                    {"name": f"gpu-{number}", "allowMultipleAllocations": True, "capacity": {"share": {"value": "1"}}}
                    for number in range(row.get("gpus", 0))
                ]
                self._put_slice(name, "shared", devices)
        dra = self.case.get("dra", {})
        for name in dra.get("classes", ()):
            plain = name.replace("/", ".")
            selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{plain}'"}}
            spec = {"selectors": [selector]}
            self.claims.put_class(decode({"metadata": {"name": plain}, "spec": spec}, api.DeviceClass).object)
        for row in dra.get("slices", ()):
            kind = {"kind": {"string": row["class"].replace("/", ".")}}
            plain = row["class"].replace("/", "-")
            devices = [
                {"name": f"{plain}-{number}".replace(".", "-"), "attributes": kind} for number in range(row["devices"])
            ]
            self._put_slice(row["node"], plain, devices)

    def _put_slice(self, node: str, name: str, devices: list[dict[str, Any]]) -> None:
        pool = {"name": f"{node}-{name}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
        body = {"metadata": {"name": f"{node}-{name}".replace(".", "-")}, "spec": spec}
        self.claims.put_slice(decode(body, api.ResourceSlice).object)

    # --- jobs ---

    def _make_job(self, row: Mapping[str, Any], number: int) -> None:
        if "subGroups" in row:
            root = self._part(row["subGroups"])
        else:
            root = Part(minimum=row["minMember"], near=self._near(row))
        age = row["ageMinutes"]
        job = Job(
            row["name"],
            row["queue"],
            priority=row["priority"],
            is_preemptible=row["preemptible"],
            created=f"{10**9 - int(age * 60):012}-{number:04}",
            root=root,
        )
        self.jobs[job.key] = job
        if "staleForSeconds" in row:
            self.stale_since[job.key] = NOW - row["staleForSeconds"]
        if "stalenessGracePeriodSeconds" in row:
            self.grace[job.key] = row["stalenessGracePeriodSeconds"]
        job.takes_at_s = NOW + row.get("preemptionDelaySeconds", 0) - age * 60
        for index, pod in enumerate(row["pods"]):
            self._make_task(job, row, pod, index)

    def _part(self, row: Mapping[str, Any]) -> Part:
        leaves = [
            Part(name=each["name"], minimum=each["minMember"], near=self._near(each)) for each in row.get("podSets", ())
        ]
        parts = (*leaves, *(self._part(each) for each in row.get("subGroups", ())))
        minimum = row.get("minSubGroup", len(parts))
        return Part(name=row["name"], minimum=minimum, parts=parts, near=self._near(row))

    def _near(self, row: Mapping[str, Any]) -> Near | None:
        near = row.get("topology")
        if near is None:
            return None
        levels = next(each["levels"] for each in self.case["topologies"] if each["name"] == near["topology"])
        return Near(tuple(levels), near.get("required", ""), near.get("preferred", ""))

    def _make_task(self, job: Job, row: Mapping[str, Any], pod: Mapping[str, Any], index: int) -> None:
        name = f"{job.key}-{index}"
        state = pod["state"]
        node = pod.get("node", "") if state != "Pending" else ""
        self.states[name], self.nodes[name] = state, node
        gpus = Fraction(str(pod.get("gpus", row.get("gpus", 0))))
        if "gpuMemoryMiB" in row:
            gpus += Fraction(row["gpuMemoryMiB"], self._gpu_memory())
        claimed = self._dra_gpus(pod.get("claims", ()))
        gpus_all = gpus * row.get("fractionDevices", 1)
        slices = sum(_slices(profile) * number for profile, number in pod.get("mig", {}).items())
        is_best_effort = row.get("bestEffort", False)
        cpu = 0 if is_best_effort else int(row.get("cpu", 1) * MILLI)
        memory = 0 if is_best_effort else _bytes(row.get("memory", 10**9))
        amounts = {"cpu": cpu * ONE, "memory": memory * ONE, "gpu": int((gpus_all + slices + claimed) * ONE)}
        if state in _FINISHED:
            return
        made = self._pod(name, row, pod, gpus, cpu, memory, node)
        is_leaving = state in _LEAVING
        task = Task(
            job,
            made,
            amounts,
            part=pod.get("subGroup", ""),
            node=node,
            rank=(-pod.get("priority", 0), index),
            is_leaving=is_leaving,
        )
        job.tasks.append(task)
        self.tasks[name] = self._by_key[task.key] = task
        is_held = state in _ACTIVE and bool(node)
        if is_held or state == "Pending":
            self.tree.request(job.queue, amounts)
        if node:
            self._occupy(made, pod, node)

    def _placed(self, info: PodInfo) -> None:
        task = self._by_key.get(info.key)
        if task is not None and not task.is_leaving and info.key not in self._held:
            self._held.add(info.key)
            self.tree.hold(task.job.queue, task.amounts, firmly=not task.job.is_preemptible)

    def _left(self, info: PodInfo) -> None:
        task = self._by_key.get(info.key)
        if task is not None and info.key in self._held:
            self._held.discard(info.key)
            self.tree.hold(task.job.queue, task.amounts, -1, firmly=not task.job.is_preemptible)

    def _gpu_memory(self) -> int:
        sizes = {row.get("gpuMemoryMiB", DEFAULT_MEMORY_MIB) for row in self.case["nodes"].values()}
        if len(sizes) != 1:
            raise Unsupported("GPUs of several sizes")
        return int(sizes.pop())

    def _dra_gpus(self, names: Any) -> int:
        rows = {row["name"]: row for row in self.case.get("dra", {}).get("claims", ())}
        return sum(rows[name].get("count", 1) for name in names if name in rows and "gpu" in rows[name]["class"])

    def _pod(
        self,
        name: str,
        row: Mapping[str, Any],
        pod: Mapping[str, Any],
        gpus: Fraction,
        cpu: int,
        memory: int,
        node: str,
    ) -> core_v1.Pod:
        requests: dict[str, str] = {}
        if cpu or memory:
            requests = {"cpu": f"{cpu}m", "memory": str(memory)}
        requests |= {profile: str(number) for profile, number in pod.get("mig", {}).items()}
        spec: dict[str, Any] = {}
        claims: list[dict[str, Any]] = []
        if gpus and self._shares_devices:
            for number in range(row.get("fractionDevices", 1)):
                claims += self._share_claims(f"{name}-d{number}", gpus)
        elif gpus:
            requests[GPU] = str(int(gpus))
        claims += [self._named_claim(claim) for claim in pod.get("claims", ())]
        if claims:
            spec["resourceClaims"] = [
                {"name": claim["metadata"]["name"], "resourceClaimName": claim["metadata"]["name"]} for claim in claims
            ]
        if "nodeAffinity" in pod:
            names = pod["nodeAffinity"] if isinstance(pod["nodeAffinity"], list) else [pod["nodeAffinity"]]
            term = {"matchExpressions": [{"key": "kai.scheduler/type", "operator": "In", "values": names}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": required}
        affinity = _pod_affinity(pod)
        if affinity:
            spec["affinity"] = {**spec.get("affinity", {}), **affinity}
        self._claims_of[name] = claims
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": f"uid-{name}-{next(self._uids)}"}
        metadata["labels"] = pod.get("podAffinityLabels", {})
        if pod["state"] == "Releasing":
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        body = {
            "metadata": metadata,
            "spec": {"containers": [container], "priority": row["priority"], "nodeName": node, **spec},
        }
        return decode(body, core_v1.Pod).object

    def _share_claims(self, name: str, gpus: Fraction) -> list[dict[str, Any]]:
        found = []
        rest, number = gpus, 0
        while rest > 0:
            part = min(Fraction(1), rest)
            rest -= part
            exactly = {
                "deviceClassName": SHARE_CLASS,
                "allocationMode": "ExactCount",
                "count": 1,
                "capacity": {"requests": {"share": f"{int(part * 10**6)}u"}},
            }
            found.append(
                {
                    "metadata": {
                        "name": f"{name}-{number}".replace("_", "-").lower(),
                        "namespace": "ns",
                        "uid": f"c-{name}-{number}",
                    },
                    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
                }
            )
            number += 1
        for body in found:
            self.claims.put_claim(decode(body, api.ResourceClaim).object)
        return found

    def _named_claim(self, claim: str) -> dict[str, Any]:
        rows = {row["name"]: row for row in self.case["dra"]["claims"]}
        if claim not in rows:
            raise Unsupported("claims that are not there")
        row = rows[claim]
        exactly = {
            "deviceClassName": row["class"].replace("/", "."),
            "allocationMode": "ExactCount",
            "count": row.get("count", 1),
        }
        body = {
            "metadata": {"name": claim, "namespace": "ns", "uid": f"uid-{claim}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        if "ReservedFor" in row.get("status", {}):
            others = [{"resource": "pods", "name": f"other-{number}", "uid": f"o-{number}"} for number in range(256)]
            body["status"] = {"reservedFor": others}
        if self.claims.claim("ns", claim) is None:
            self.claims.put_claim(decode(body, api.ResourceClaim).object)
        return body

    def _occupy(self, made: core_v1.Pod, pod: Mapping[str, Any], node: str) -> None:
        """The devices of a pod that runs already are held, and it is on its node."""
        claims = self._claims_of[made.metadata.name]
        wanted: list[str | int] = pod.get("devices") or list(pod.get("gpuGroups", ()))
        for number, body in enumerate(claims):
            known = self.claims.claim("ns", body["metadata"]["name"])
            assert known is not None
            if known.status.allocation is not None:
                continue
            request = body["spec"]["devices"]["requests"][0]["exactly"]
            results = self._held_devices(request, node, wanted[number] if number < len(wanted) else None)
            status = {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": made.metadata.name, "uid": made.metadata.uid}],
            }
            self.claims.put_claim(decode({**body, "status": status}, api.ResourceClaim).object)
        self.cluster.put_pod(made)

    def _held_devices(self, request: Mapping[str, Any], node: str, group: str | int | None) -> list[dict[str, Any]]:
        if request["deviceClassName"] == SHARE_CLASS:
            part = request["capacity"]["requests"]["share"]
            name = f"gpu-{self._device(node, group, part)}"
            return [
                {
                    "request": "gpu",
                    "driver": DRIVER,
                    "pool": f"{node}-shared",
                    "device": name,
                    "shareID": f"00000000-0000-0000-0000-{next(self._uids):012}",
                    "consumedCapacity": {"share": part},
                }
            ]
        kind = request["deviceClassName"].replace(".", "-")
        pool = next(
            f"{row['node']}-{row['class'].replace('/', '-')}"
            for row in self.case["dra"]["slices"]
            if row["node"] == node and row["class"].replace("/", ".") == request["deviceClassName"]
        )
        used = self._used.setdefault(pool, count())
        return [
            {"request": "gpu", "driver": DRIVER, "pool": pool, "device": f"{kind}-{next(used)}"}
            for _ in range(request["count"])
        ]

    def _device(self, node: str, group: str | int | None, part: str) -> int:
        """The number of the device behind a group's name, or the next that nobody has."""
        if isinstance(group, int):
            return group
        known: dict[str, int] = self._groups.setdefault(node, {})
        key = group if group is not None and part != "1000000u" else f"whole-{next(self._uids)}"
        if key not in known:
            size = self.case["nodes"][node].get("gpus", 0)
            free = [number for number in range(size) if number not in known.values()]
            number = int(key) if key.isdigit() and int(key) in free else (free[0] if free else 0)
            known[key] = number
        return known[key]

    # --- running ---

    def run(self) -> None:
        case = self.case
        if case["mode"] == "once":
            self._round(case["actions"])
            return
        self.default_grace = 0.0
        for _ in range(case["rounds"]):
            self._round(case["actions"])
            self._come_back()

    def run_on(self) -> None:
        """One more round; nothing may change."""
        self._round(self.case["actions"])
        self._come_back()

    def _round(self, actions: list[str]) -> None:
        waiting = {key: job for key, job in self.jobs.items() if self.tree.refusal(job.queue) == ""}
        round_ = Round(self.cluster, self.tree, waiting, lambda _pod: self._settings, NOW)
        for action in actions:
            if action == "allocate":
                for started in round_.allocate():
                    for task, placement in started.placed:
                        name = task.pod.metadata.name
                        self.states[name] = "Pipelined" if started.waits else "Binding"
                        self.nodes[name] = placement.node
            elif action == "stalegangeviction":
                self._let_go()
            else:
                way = {"consolidation": round_.consolidate, "reclaim": round_.reclaim, "preempt": round_.preempt}[
                    action
                ]
                for taken in way():
                    self._taken(taken)
        self.refusals = round_.refusals

    def _taken(self, taken: Takeover) -> None:
        self.evictions += len(taken.evicted) + len(taken.moved)
        for task in taken.evicted:
            self.states[task.pod.metadata.name] = "Releasing"
        for task, placement in (*taken.placed, *taken.moved):
            self.states[task.pod.metadata.name] = "Pipelined"
            self.nodes[task.pod.metadata.name] = placement.node

    def _let_go(self) -> None:
        for key, job in self.jobs.items():
            if any(self.states[f"{key}-{number}"] == "Succeeded" for number in range(len(self._row(key)["pods"]))):
                continue
            for task in stale([job], self.stale_since, NOW, self.grace.get(key, self.default_grace)):
                self.states[task.pod.metadata.name] = "Releasing"

    def _row(self, key: str) -> Mapping[str, Any]:
        return next(row for row in self.case["jobs"] if row["name"] == key)

    def _come_back(self) -> None:
        """What was evicted or waits for others comes back as pending; what was placed runs. Everything is made anew from that."""
        jobs = []
        for row in self.case["jobs"]:
            pods = []
            for index, pod in enumerate(row["pods"]):
                name = f"{row['name']}-{index}"
                state = self.states[name]
                is_stuck = row.get("stuckReleasing", False) and pod["state"] in _LEAVING
                if state in ("Pipelined", "Releasing") and not is_stuck:
                    new: dict[str, Any] = {**pod, "state": "Pending"}
                    new.pop("node", None)
                    new.pop("gpuGroups", None)
                    new.pop("devices", None)
                elif state == "Binding":
                    new = {**pod, "state": "Running", "node": self.nodes[name]}
                else:
                    new = {**pod, "state": state}
                if new.get("node") and name in self.tasks:
                    new["devices"] = self._devices_of(name)
                pods.append(new)
            jobs.append({**row, "pods": pods})
        self.case = {**self.case, "jobs": jobs}
        self.tasks, self.jobs = {}, {}
        self._make()

    def _devices_of(self, name: str) -> list[int]:
        held = self.claims.held_by(self.tasks[name].pod)
        return [int(device.removeprefix("gpu-")) for device in held if device.startswith("gpu-")]

    # --- comparing ---

    def differences(self) -> list[str]:
        """What is not as expected; empty if all is."""
        expect = self.case["expect"]
        found: list[str] = []
        # Pods that are alike, with the nodes where they should be and are.
        alike: dict[str, tuple[list[str], list[str]]] = {}
        for row in self.case["jobs"]:
            for index in range(len(row["pods"])):
                name = f"{row['name']}-{index}"
                wanted = {**expect.get("jobs", {}).get(row["name"], {}), **expect.get("pods", {}).get(name, {})}
                if not wanted:
                    continue
                state = self.states[name]
                if not _is_state(state, wanted["state"]):
                    found.append(f"{name}: {state}, not {wanted['state']}")
                elif "node" in wanted and state not in ("Pending", "Releasing"):
                    kind = f"{row['name']} {json.dumps([self._first_of(row['name'])[index], wanted['state']], sort_keys=True)}"
                    expected, actual = alike.setdefault(kind, ([], []))
                    expected.append(wanted["node"])
                    actual.append(self.nodes[name])
        most = expect.get("evictionsAtMost")
        if most is not None and self.case["mode"] == "once" and self.evictions > most:
            found.append(f"{self.evictions} evictions, not {most}")
        return found or self._misplaced(alike)

    def _first_of(self, job: str) -> list[Mapping[str, Any]]:
        """The pods of a job as they were in the beginning."""
        found: list[Mapping[str, Any]] = next(row["pods"] for row in self.first["jobs"] if row["name"] == job)
        return found

    def _misplaced(self, alike: Mapping[str, tuple[list[str], list[str]]]) -> list[str]:
        """Pods that are elsewhere, whatever equal nodes and domains are called."""
        if is_symmetric(self.case, list(alike.values())):
            return []
        return [f"{kind}: on {actual}, not {expected}" for kind, (expected, actual) in alike.items()]


def _settings(plugins: Sequence[Mapping[str, Any]]) -> Settings:
    placement = next((plugin.get("arguments", {}) for plugin in plugins if plugin["name"] == "nodeplacement"), {})
    return _SPREADING if placement.get("GPUResource") == "SpreadStrategy" else _PACKING


def _pod_affinity(pod: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for field, kind in (("podAffinityKey", "podAffinity"), ("podAntiAffinityKey", "podAntiAffinity")):
        if field in pod:
            term = {
                "labelSelector": {"matchExpressions": [{"key": pod[field], "operator": "Exists"}]},
                "topologyKey": "kubernetes.io/hostname",
            }
            found[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return found


def _is_state(state: str, wanted: str) -> bool:
    return state == wanted or {state, wanted} <= {"Binding", "Bound", "Allocated", "Running"}


def _queue(row: Mapping[str, Any], number: int) -> Queue:
    quotas = {
        "gpu": _quota(row.get("gpu"), 1),
        "cpu": _quota(row.get("cpu"), 1),
        "memory": _quota(row.get("memory"), 10**6),
    }
    return Queue(
        name=row["name"],
        parent=row.get("parent", ""),
        priority=row.get("priority", 100),
        quotas=quotas,
        created=f"{number:04}",
    )


def _quota(row: Mapping[str, Any] | None, unit: int) -> Quota:
    if row is None:
        return Quota()

    def bound(value: float) -> int:
        return UNLIMITED if value < 0 else int(Fraction(str(value)) * unit * ONE)

    return Quota(bound(row["quota"]), bound(row["limit"]), max(Fraction(0), Fraction(str(row["weight"]))))


def _slices(profile: str) -> int:
    """How many slices of a GPU a profile takes: nvidia.com/mig-2g.10gb takes 2."""
    return int(profile.partition("mig-")[2].partition("g.")[0])


_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def _bytes(value: Any) -> int:
    if isinstance(value, (int, float)):
        return int(value)
    for suffix, size in _UNITS.items():
        if value.endswith(suffix):
            return int(Fraction(value.removesuffix(suffix)) * size)
    return int(value)
