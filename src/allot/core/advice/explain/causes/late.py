"""Pods with a node: why they do not run yet, and which devices they have if they do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.compute_domains import FAILED_PREPARE, waits_for_domain
from allot.core.advice.explain.causes.containers import container_trouble, with_meaning
from allot.core.advice.explain.causes.keepers import idle_keeper
from allot.core.advice.explain.causes.kinship import deployment_of
from allot.core.advice.explain.causes.probes import KILLED, probe_trouble
from allot.core.advice.explain.causes.starting import starting
from allot.core.advice.explain.causes.tainted import evicting_taint
from allot.core.advice.explain.causes.unhealthy import unhealthy
from allot.core.advice.explain.causes.uninstalled import gone_text, is_uninstalled, reinstall_advice
from allot.core.advice.explain.devices import device_id
from allot.core.advice.explain.diagnosis import Diagnosis, place_of_claim
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import (
    OVERDUE_MIN_S,
    force_text,
    is_silent,
    is_stranded,
    overdue,
    recover_text,
)
from allot.core.advice.explain.messages.drivers import DRIVERS
from allot.core.advice.explain.messages.facts import Facts, held_devices
from allot.core.advice.explain.messages.table import meaning_of
from allot.core.advice.explain.remedies.holders import sharing_strategy
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Reason, UsedDevice
from allot.core.advice.explain.wording import duration, listed, named, one_line
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api

_RESIZE_PENDING, _RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
# Prefixes in messages of kubelets and drivers.
_PREFIXES = re.compile(
    r"^(?:Failed to prepare dynamic resources|prepare dynamic resources|preparing devices|NodePrepareResources failed for "
    r"(?:ResourceClaim |claim )?\S+|error preparing devices for claim(?: \S+)?|failed to (?:decode|prepare) (?:config|devices)): "
)
_UNKNOWN_FIELD = re.compile(r'unknown field "(?P<path>[^"]+)"')
# Fields of NVIDIA's opaque configurations, by the field that they are in, to correct misspellings.
_CONFIG_FIELDS = {
    "": ("sharing", "driver", "domainID", "allocationMode"),
    "sharing": ("strategy", "timeSlicingConfig", "mpsConfig"),
    "timeSlicingConfig": ("interval",),
    "mpsConfig": (
        "defaultActiveThreadPercentage",
        "defaultPinnedDeviceMemoryLimit",
        "defaultPerDevicePinnedMemoryLimit",
    ),
}
_NOT_REGISTERED = re.compile(r"DRA driver (?P<driver>\S+) is not registered")
_SAME_NAME = re.compile(r"old ResourceClaim with same name (?P<claim>\S+) and different UID (?P<uid>\S+) still exists")
_UNPREPARE = re.compile(r"NodeUnprepareResources|unprepar")
# The answer to a kubelet that is too old, or too new, for the API server.
_NOT_SERVED = "the server could not find the requested resource"
_STRATEGY = re.compile(r"unknown GPU sharing strategy: (?P<strategy>\w+)")
# Feature gates of NVIDIA's driver without which it does not know a strategy.
_STRATEGY_GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


def after_scheduling(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    """Why a pod with a node does not run. The current state of its containers outweighs old events."""
    found = trouble(what_if, pod) or _unallocated(what_if, pod)
    if found is not None:
        return found
    said = _not_prepared(what_if, pod)
    missing = _NOT_REGISTERED.search(said)
    if missing is not None:
        # Without its driver, a node joins no domain either.
        return _unregistered(what_if, pod, missing["driver"])
    domain = waits_for_domain(what_if, pod)
    if domain is not None:
        return domain
    return (_vanished(what_if, pod) or _prepare(what_if, pod, said)) if said else starting(what_if, pod)


def _not_prepared(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """Why the devices of a pod were last not prepared; empty if they have been since."""
    prepare = events_of(what_if, pod, FAILED_PREPARE)
    later = events_of(what_if, pod, "Pulling", "Pulled", "Created", "Started")
    return "" if not prepare or (later and later[0].seen_at > prepare[0].seen_at) else prepare[0].message


def terminating(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    """What keeps a deleted pod. text: phrased to follow its node."""
    metadata = pod.metadata
    text = f"has been terminating since {metadata.deletion_timestamp}"
    away = _node_away(what_if, pod)
    if away is not None:
        force = f"kubectl delete pod {metadata.name} -n {metadata.namespace} --force, if the node is off for good"
        gone = away.reason is Reason.NO_NODES
        ways = away.advice if gone else (*away.advice[:1], force)
        if is_silent(what_if, pod):
            ways = (recover_text([pod]),)
        return Diagnosis(reason=Reason.BEING_DELETED, text=f"{text}: {away.text}", advice=ways)
    if metadata.finalizers:
        return _kept(what_if, pod, text)
    failed = events_of(what_if, pod, "FailedKillPod")
    if failed:
        text += f": {one_line(failed[0].message)}"
        advice = f"check the kubelet and the container runtime of node {pod.spec.node_name}"
        return Diagnosis(reason=Reason.BEING_DELETED, text=text, advice=(advice,))
    late = overdue(what_if, pod)
    if late > OVERDUE_MIN_S:
        return _hangs(what_if, pod, text, late)
    grace = metadata.deletion_grace_period_seconds
    return Diagnosis(
        reason=Reason.BEING_DELETED,
        text=f"{text}{f' (grace period {duration(grace)})' if grace else ''}: it is about to end",
    )


def _kept(what_if: WhatIfCluster, pod: core_v1.Pod, text: str) -> Diagnosis:
    """A pod whose finalizers no one removes; its containers may have ended long ago."""
    names = pod.metadata.finalizers
    finalizers, them = named("finalizer", names), "it" if len(names) == 1 else "them"
    text = f"{text}, kept by {finalizers}"
    keeper = idle_keeper(what_if, names, f"removes the {'finalizer' if len(names) == 1 else 'finalizers'}")
    if keeper is None:
        advice = f"check {finalizers}: the component that set {them} must remove {them}"
        return Diagnosis(reason=Reason.BEING_DELETED, text=text, advice=(advice,))
    patch = """-p '{"metadata":{"finalizers":null}}'"""
    by_hand = f"kubectl patch pod {pod.metadata.name} -n {pod.metadata.namespace} {patch}, if nothing is left to do for {them}"
    return Diagnosis(reason=Reason.BEING_DELETED, text=f"{text}: {keeper.text}", advice=(keeper.advice, by_hand))


def _hangs(what_if: WhatIfCluster, pod: core_v1.Pod, text: str, late: int) -> Diagnosis:
    """A pod that its kubelet cannot remove yet: running drivers must unprepare its claims first."""
    node, metadata = pod.spec.node_name, pod.metadata
    used = {used.claim: used.device.partition("/")[0] for used in devices_of(what_if, pod)}
    force = f"kubectl delete pod {metadata.name} -n {metadata.namespace} --force, as a workaround: its devices stay prepared on the node"
    for claim, driver in used.items():
        left_out = driver_pods.unselected(what_if, driver, node)
        failing = driver_pods.failing(what_if, driver, node) or ([left_out] if left_out is not None else [])
        if failing:
            text += f": kubelet has to unprepare claim {claim} first, and driver {driver} does not run on the node ({driver_pods.failing_text(failing)})"
            return Diagnosis(reason=Reason.BEING_DELETED, text=text, advice=(failing[0].advice, force))
    lost = next(((claim, driver) for claim, driver in used.items() if is_uninstalled(what_if, driver, node)), None)
    if lost is not None:
        claim, driver = lost
        text += f": kubelet has to unprepare claim {claim} first, and driver {driver} is gone: {gone_text(what_if, driver, node)}"
        return Diagnosis(reason=Reason.BEING_DELETED, text=text, advice=(reinstall_advice(driver, node), force))
    statuses = pod.status.container_statuses
    ended = bool(statuses) and all(each.state is not None and each.state.terminated is not None for each in statuses)
    what = "although its containers have ended" if ended else "and its containers still run"
    text += f" and should have been gone {duration(late)} ago, {what}"
    drivers = f", and the log of {named('driver', sorted(set(used.values())))}" if used and ended else ""
    return Diagnosis(
        reason=Reason.BEING_DELETED,
        text=text,
        advice=(f"check the kubelet and the container runtime of node {node}{drivers}",),
    )


def resizing(pod: core_v1.Pod) -> Diagnosis | None:
    """A resize that the node of a running pod cannot apply; None if there is none."""
    for condition in pod.status.conditions:
        if condition.type not in (_RESIZE_PENDING, _RESIZE_IN_PROGRESS) or condition.status != "True":
            continue
        if condition.type == _RESIZE_IN_PROGRESS and condition.reason != "Error":
            continue
        said = one_line(condition.message)
        node = pod.spec.node_name
        text = f"its new resources have not taken effect ({condition.reason}){f': {said}' if said else ''}"
        advice = f"check the kubelet of node {node}"
        if condition.reason == "Infeasible":
            advice = f"ask for no more than node {node} has, or recreate the pod, so that it gets a larger node"
        elif condition.reason == "Deferred":
            advice = f"make room on node {node}: the kubelet tries again when another pod there ends or asks for less"
        return Diagnosis(reason=Reason.RESOURCES, text=text, advice=(advice,))
    return None


# --- what the pod's and the claims' status say ---


def trouble(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """What is wrong with the devices or containers of a pod that has a node; None if its status says nothing of the kind."""
    found = (
        _node_away(what_if, pod)
        or evicting_taint(what_if, pod)
        or unhealthy(what_if, pod)
        or container_trouble(what_if, pod)
    )
    if found is None or found.reason is not Reason.CRASH:
        return found
    killed = probe_trouble(what_if, pod, "Liveness", "Startup") if _may_be_killed(pod) else None
    if killed is None:
        return found
    # A container that the kubelet kills has only failed its probe.
    # Its log is mentioned once.
    more = [each for each in found.advice if not any(other.endswith(each) for other in killed.advice)]
    return replace(found, text=f"{found.text}: {killed.text}", advice=(*killed.advice, *more))


def _may_be_killed(pod: core_v1.Pod) -> bool:
    """Whether a container ended as those do that the kubelet kills, or in an unknown way; one that ended by itself said why."""
    last = [each.last_state.terminated for each in pod.status.container_statuses if each.last_state is not None]
    return any(each is None or not each.message or each.exit_code in KILLED for each in last) or not last


def _node_away(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A node that is gone or not ready: the state of its pods is unknown."""
    name = pod.spec.node_name
    info = what_if.cluster.nodes.get(name)
    if is_stranded(what_if, pod):
        return Diagnosis(reason=Reason.NO_NODES, text=f"node {name} no longer exists", advice=(force_text([pod]),))
    if info is None:
        return None
    ready = next((each for each in info.node.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return None
    said = f" ({ready.message.rstrip('.')})" if ready.message else ""
    advice = (f"check the kubelet of node {name} (kubectl describe node {name})",)
    return Diagnosis(reason=Reason.NODE_NOT_READY, text=f"node {name} is not ready{said}", advice=advice)


def _unallocated(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A pod that bypassed the scheduler, so its claims were never allocated or reserved."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None:
            continue
        uids = {user.uid for user in claim.status.reserved_for if user.resource == "pods"}
        groups = any(user.resource != "pods" for user in claim.status.reserved_for)
        if claim.status.allocation is not None and (pod.metadata.uid in uids or groups):
            continue
        what = "allocated" if claim.status.allocation is None else "reserved for it"
        text = (
            f"it was bound to node {pod.spec.node_name} without the scheduler (spec.nodeName), so its claim {namespace}/{name} was "
            f"never {what}"
        )
        advice = (
            "create the pod without spec.nodeName; to choose its node, use a nodeSelector on kubernetes.io/hostname",
        )
        return Diagnosis(reason=Reason.NOT_ALLOCATED, text=text, advice=advice)
    return None


def _claim_with(what_if: WhatIfCluster, pod: core_v1.Pod, strategy: str) -> str:
    """The claim of a pod that has a sharing strategy."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is not None and sharing_strategy(claim) == strategy:
            return f"claim {full_name(claim)}"
    return "the claim"


def _driver_set(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """` (DaemonSet a/b)`: where a driver is configured; empty if unknown."""
    drivers = sorted({used.device.partition("/")[0] for used in devices_of(what_if, pod)})
    for plugin in (each for driver in drivers for each in driver_pods.plugins(what_if, driver, pod.spec.node_name)):
        owner = workload_of(what_if, plugin)
        if owner.startswith("DaemonSet "):
            return f" (DaemonSet {plugin.metadata.namespace}/{owner.removeprefix('DaemonSet ')})"
    return ""


def _prepare(what_if: WhatIfCluster, pod: core_v1.Pod, message: str) -> Diagnosis:
    node = pod.spec.node_name
    said = one_line(message)
    while (shorter := _PREFIXES.sub("", said)) != said:
        said = shorter
    advice: tuple[str, ...]
    wrong = _UNKNOWN_FIELD.search(message)
    if wrong is not None:
        return _misspelt(what_if, pod, said, wrong["path"])
    unknown = _STRATEGY.search(message)
    if unknown is not None:
        strategy = unknown["strategy"]
        gate = _STRATEGY_GATES.get(strategy)
        why = f": the driver's feature gate {gate} is disabled" if gate is not None else ""
        text = (
            f"the driver on node {node} does not know the sharing strategy {strategy} that {_claim_with(what_if, pod, strategy)} is configured with "
            f'("unknown GPU sharing strategy: {strategy}"){why}'
        )
        advice = (
            f"enable feature gate {gate} of the driver{_driver_set(what_if, pod)}"
            if gate is not None
            else "use another strategy",
            "drop the sharing configuration from the claim",
        )
        return Diagnosis(reason=Reason.PREPARE, text=text, details=(message,), advice=advice)
    older = _SAME_NAME.search(message)
    if older is not None:
        return _not_unprepared(what_if, pod, older["claim"], older["uid"])
    info = what_if.cluster.nodes.get(node)
    version = info.node.status.node_info.kubelet_version if info is not None else ""
    if _NOT_SERVED in message and version:
        text = (
            f"kubelet {version} of node {node} cannot read its claim: the API server does not serve the version of resource.k8s.io "
            "that it asks for"
        )
        advice = (f"upgrade the kubelet of node {node} to the version of the control plane",)
        return Diagnosis(reason=Reason.PREPARE, text=text, details=(message,), advice=advice)
    text = f"node {node} cannot prepare its devices: {said}"
    drivers = sorted({used.device.partition("/")[0] for used in devices_of(what_if, pod)})
    daemon = _daemon(what_if, pod)
    if daemon is not None:
        return replace(daemon, text=f"{text}: {daemon.text}")
    found = meaning_of(DRIVERS, message, Facts(what_if, pod, plugin=_plugin(what_if, drivers, node)))
    if found is not None:
        return Diagnosis(
            reason=Reason.PREPARE,
            text=with_meaning(text, found),
            details=_configurations(what_if, pod),
            advice=found.advice,
        )
    advice = (f"see the log of {named('driver', drivers)} on node {node}",) if drivers else ()
    return Diagnosis(reason=Reason.PREPARE, text=text, details=_configurations(what_if, pod), advice=advice)


def _plugin(what_if: WhatIfCluster, drivers: Sequence[str], node: str) -> str:
    """The pod of a driver on a node, or words for it."""
    pods = [full_name(pod) for driver in drivers for pod in driver_pods.plugins(what_if, driver, node)]
    return named("pod", pods) if pods else f"the plugin of {named('driver', drivers)} on node {node}"


def _daemon(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A daemon that a driver runs for one claim, such as MPS's, and that does not run. It has the UID of the claim in its name."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        uid = claim.metadata.uid if claim is not None else ""
        for other in what_if.all(core_v1.Pod) if uid else ():
            if uid not in other.metadata.name:
                continue
            wrong = container_trouble(what_if, other)
            if wrong is None:
                continue
            maker = deployment_of(what_if, other)
            whose = f" of Deployment {other.metadata.namespace}/{maker}" if maker else ""
            place = place_of_claim(what_if, pod, claim) if claim is not None else None
            fix = f"fix the daemon that the driver runs for the claim, pod {full_name(other)}: {wrong.advice[0]}"
            without = (f"drop the sharing configuration from {place.spoken}, and recreate the pod",) if place else ()
            text = f"the driver's daemon for the claim does not run: in pod {full_name(other)}{whose}, {wrong.text}"
            return Diagnosis(reason=Reason.PREPARE, text=text, advice=(fix, *without))
    return None


def _not_unprepared(what_if: WhatIfCluster, pod: core_v1.Pod, claim: str, uid: str) -> Diagnosis:
    """A kubelet that still has an earlier claim of the same name, deleted before its devices were unprepared."""
    node, namespace = pod.spec.node_name, pod.metadata.namespace
    text = (
        f"the kubelet of node {node} still has an earlier ResourceClaim {namespace}/{claim} (uid {uid}), which was deleted and created "
        "again before its devices were unprepared"
    )
    earlier = [
        event
        for event in what_if.all(observed_v1.Event)
        if event.reason == "FailedKillPod" and _UNPREPARE.search(event.message) and claim in event.message
    ]
    last = max(earlier, key=lambda event: event.seen_at, default=None)
    if last is not None:
        text += f", and unpreparing them fails: {one_line(last.message).rpartition(': ')[2]}"
    drivers = sorted({used.device.partition("/")[0] for used in devices_of(what_if, pod)})
    plugin = f"the plugin of {named('driver', drivers)}" if drivers else "the driver's plugin"
    advice = (
        f"see the log of {plugin} on node {node}, and restart it if it hangs: the kubelet then retries by itself",
        "as a workaround, use a claim with another name",
    )
    return Diagnosis(reason=Reason.PREPARE, text=text, advice=advice)


def _unregistered(what_if: WhatIfCluster, pod: core_v1.Pod, driver: str) -> Diagnosis:
    """A kubelet without the driver of a claim: its plugin fails there, or does not run there at all."""
    node = pod.spec.node_name
    left_out = driver_pods.unselected(what_if, driver, node)
    failing = driver_pods.failing(what_if, driver, node) or ([left_out] if left_out is not None else [])
    gone = not failing and is_uninstalled(what_if, driver, node)
    absent = gone_text(what_if, driver, node) if gone else "its plugin does not run there"
    text = (
        f"DRA driver {driver} is not registered with the kubelet of node {node}, so the pod's devices cannot be prepared: "
        f"{driver_pods.failing_text(failing) or absent}"
    )
    check = (
        f"check that the pods of driver {driver} run on node {node}, and that they reach the kubelet's plugin directory"
    )
    advice = tuple(each.advice for each in failing) or (f"install driver {driver} on node {node}" if gone else check,)
    return Diagnosis(reason=Reason.PREPARE, text=text, advice=advice)


def _misspelt(what_if: WhatIfCluster, pod: core_v1.Pod, said: str, path: str) -> Diagnosis:
    """A field that a driver does not know in the configuration of a claim."""
    *parents, field = path.split(".")
    known = _CONFIG_FIELDS.get(parents[-1] if parents else "", ())
    everywhere = [each for fields in _CONFIG_FIELDS.values() for each in fields]
    similar = nearest(field, known)
    meant = similar or (known[0] if len(known) == 1 else nearest(field, everywhere))
    places = [
        place.spoken
        for namespace, name in what_if.claims.claims_of(pod)
        if (claim := what_if.get(api.ResourceClaim, name, namespace)) is not None
        and claim.spec.devices.config
        and (place := place_of_claim(what_if, pod, claim)) is not None
    ]
    where = f" in the configuration of {listed(places)}" if places else ""
    is_only = similar is None and len(known) == 1 and bool(parents)
    inside = f"the only field of {parents[-1]} is {meant}" if is_only else f"did you mean {meant}?"
    hint = f" ({inside})" if meant is not None and meant != field else ""
    text = f"node {pod.spec.node_name} cannot prepare its devices: {said}{where}{hint}"
    fix = f"write {meant} instead of {field}" if hint else f"correct or remove field {path}"
    made = "the template" if any("Template" in each for each in places) else "the claim" if places else ""
    advice = (f"{fix}{where}, and recreate {f'{made} and ' if made else ''}the pod",)
    return Diagnosis(reason=Reason.PREPARE, text=text, advice=advice)


def _vanished(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Devices of the pod that their driver no longer publishes, although it publishes others."""
    for used in devices_of(what_if, pod):
        id_ = device_id(used.device)
        publishes = any(each.spec.driver == id_.driver for each in what_if.all(api.ResourceSlice))
        if not publishes or what_if.claims.inventory.devices_named(id_):
            continue
        text = (
            f"its claim {used.claim} has device {id_.device} of pool {id_.pool}, which driver {id_.driver} no longer publishes, so "
            f"node {pod.spec.node_name} cannot prepare it"
        )
        template = any(entry.resource_claim_template_name for entry in pod.spec.resource_claims)
        again = "" if template else f" and claim {used.claim}"
        advice = (f"delete the pod{again}: its replacement gets another device",)
        return Diagnosis(reason=Reason.PREPARE, text=text, advice=advice)
    return None


def _configurations(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[str, ...]:
    """The source of the configuration that a driver gets."""
    found = []
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is not None and claim.spec.devices.config:
            drivers = {config.opaque.driver for config in claim.spec.devices.config if config.opaque is not None}
            found.append(f"claim {namespace}/{name} has a configuration for driver {', '.join(sorted(drivers))}")
    return tuple(found)


def devices_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[UsedDevice, ...]:
    """The devices that a pod's claims have."""
    return tuple(
        UsedDevice(
            claim=full_name(held.claim),
            request=held.result.request,
            device=f"{held.result.driver}/{held.result.pool}/{held.result.device}",
        )
        for held in held_devices(what_if, pod)
    )
