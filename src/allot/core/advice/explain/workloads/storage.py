"""Why a PersistentVolumeClaim is not bound."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from allot.core.advice.explain.causes.keepers import idle_keeper
from allot.core.advice.explain.causes.volumes import DEFAULT_CLASS
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.wording import count, joined, listed, named, one_line
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, live_pods, not_as_wanted, of_pod
from allot.core.advice.nearest import nearest
from allot.core.model import core_v1
from allot.core.model.storage_v1 import StorageClass
from allot.core.scheduling import volume_matching

_WAITS = "WaitForFirstConsumer"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_ONLY_MODES = re.compile(r"\bonly\b(?P<rest>.*)", re.IGNORECASE)
_FAILED = ("ProvisioningFailed", "FailedBinding", "VolumeMismatch", "ClaimLost", "ClaimMisbound")


def explain_volume_claim(scene: Scene, found: core_v1.PersistentVolumeClaim, *, briefly: bool) -> Explanation:
    """Why a PersistentVolumeClaim has no volume."""
    kind, status = "PersistentVolumeClaim", found.status
    if status.phase == "Lost":
        text = f"has lost its volume: PersistentVolume {found.spec.volume_name} no longer exists"
        return not_as_wanted(kind, found, Reason.VOLUME_LOST, text)
    if found.metadata.deletion_timestamp is not None:
        return _being_deleted(scene, found)
    if status.phase == "Bound" or volume_matching.is_bound(found):
        return as_wanted(kind, found, f"is bound to PersistentVolume {found.spec.volume_name}")
    name = volume_matching.class_name(found)
    storage_class = scene.what_if.get(StorageClass, name) if name else None
    unread = scene.what_if.unread.get(StorageClass) is not None
    said = [event.message for event in scene.events(kind, found, *_FAILED)][:1]
    if name and storage_class is None and not unread and not _offered(scene, name):
        return _no_class(scene, found, name, said)
    waits = storage_class is not None and storage_class.volume_binding_mode == _WAITS
    if waits:
        return _waits(scene, found, briefly=briefly)
    if storage_class is None and not unread and (none := _no_default(scene, found, said)) is not None:
        return none
    if storage_class is None or storage_class.provisioner == _NO_PROVISIONER:
        return _no_volume(scene, found, name, said)
    provisioner = f"provisioner {storage_class.provisioner} of StorageClass {name}"
    text = f"is not bound: {provisioner} has not created a volume for it yet"
    advice = f"check that {storage_class.provisioner} runs, and its log"
    if said:
        why = one_line(said[0]).removeprefix(f'failed to provision volume with StorageClass "{name}": ')
        text = f"is not bound: {provisioner} cannot create a volume for it: {why}"
        advice = f"fix what {storage_class.provisioner} reports: it retries automatically"
        modes = _modes_advice(scene, found, name, why)
        if modes:
            return not_as_wanted(kind, found, Reason.NOT_PROVISIONED, text, advice=modes)
    return not_as_wanted(kind, found, Reason.NOT_PROVISIONED, text, advice=(advice,))


def _being_deleted(scene: Scene, found: core_v1.PersistentVolumeClaim) -> Explanation:
    """A claim that was deleted, and who still uses it: until they are gone, so is it not."""
    metadata = found.metadata
    users = [
        pod.metadata.name
        for pod in scene.pods_in(metadata.namespace)
        if pod.status.phase not in FINISHED
        and any(
            volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == metadata.name
            for volume in pod.spec.volumes
        )
    ]
    text = f"was deleted at {metadata.deletion_timestamp}, but is still there"
    if users:
        text += f": {named('pod', users)} {'uses' if len(users) == 1 else 'use'} it"
        advice = f"delete {named('pod', users)}, or wait until {'it ends' if len(users) == 1 else 'they end'}"
    else:
        finalizers = named("finalizer", metadata.finalizers)
        text += f", kept by {finalizers}" if metadata.finalizers else ""
        keeper = idle_keeper(scene.what_if, metadata.finalizers, "removes it")
        text += f": {keeper.text}" if keeper is not None else ""
        advice = (
            keeper.advice if keeper is not None else f"see why the component that set {finalizers} has not removed it"
        )
    return not_as_wanted("PersistentVolumeClaim", found, Reason.BEING_DELETED, text, advice=(advice,))


def _modes_advice(
    scene: Scene, found: core_v1.PersistentVolumeClaim, class_name: str | None, why: str
) -> tuple[str, ...]:
    """If a provisioner names its access modes: use one of those, or another class; empty otherwise."""
    only = _ONLY_MODES.search(why)
    able = [mode for mode in _MODES if only is not None and re.search(rf"\b{mode}\b", only["rest"])]
    asked = [mode for mode in found.spec.access_modes if mode not in able]
    if not able or not asked:
        return ()
    others = sorted(each.metadata.name for each in scene.what_if.all(StorageClass) if each.metadata.name != class_name)
    there = f" (there is {listed(others)})" if others else ""
    return (
        f"recreate the claim with accessModes: [{able[0]}]",
        f"recreate the claim with a StorageClass that supports {joined(asked)}{there}",
    )


def _offered(scene: Scene, name: str) -> bool:
    return any(volume_matching.class_of(volume) == name for volume in scene.what_if.all(core_v1.PersistentVolume))


def _no_class(scene: Scene, found: core_v1.PersistentVolumeClaim, name: str, said: list[str]) -> Explanation:
    known = sorted(each.metadata.name for each in scene.what_if.all(StorageClass))
    meant = nearest(name, known)
    there = f"did you mean {meant}?" if meant is not None else f"there is {listed(known)}" if known else "there is none"
    text = f"is not bound: StorageClass {name} does not exist ({there})"
    advice = (f"recreate the claim with storageClassName: {meant or known[0]}",) if known else ()
    return not_as_wanted(
        "PersistentVolumeClaim", found, Reason.STORAGE_CLASS_MISSING, text, details=said, advice=advice
    )


def _no_default(scene: Scene, found: core_v1.PersistentVolumeClaim, said: list[str]) -> Explanation | None:
    """A claim that leaves its class to the default while none of the classes is that, and no volume fits. An empty class is a choice."""
    known = {each.metadata.name: each for each in scene.what_if.all(StorageClass)}
    able = sorted(name for name, each in known.items() if each.provisioner != _NO_PROVISIONER)
    if found.spec.storage_class_name is not None or not able:
        return None
    if any(each.metadata.annotations.get(DEFAULT_CLASS) == "true" for each in known.values()):
        return None
    if any(volume_matching.suits(each, found) for each in scene.what_if.all(core_v1.PersistentVolume)):
        return None
    text = f"is not bound: it has no storageClassName, and no StorageClass is the default (there is {listed(sorted(known))}), so no volume is created for it"
    default = f"make one StorageClass the default: kubectl annotate storageclass {able[0]} {DEFAULT_CLASS}=true (claims without a class then get it)"
    advice = (f"set storageClassName in PersistentVolumeClaim {found.metadata.name}, to {' or '.join(able)}", default)
    return not_as_wanted("PersistentVolumeClaim", found, Reason.NO_VOLUME, text, details=said, advice=advice)


def _waits(scene: Scene, found: core_v1.PersistentVolumeClaim, *, briefly: bool) -> Explanation:
    metadata = found.metadata
    pods = live_pods(pod for pod in scene.pods_in(metadata.namespace) if _uses(pod, found))
    kind = "PersistentVolumeClaim"
    if not pods:
        text = "is not bound: it waits for its first pod, and no pod uses it (WaitForFirstConsumer)"
        return not_as_wanted(kind, found, Reason.WAITS_FOR_CONSUMER, text)
    pod = pods[0]
    if pod.spec.node_name:
        text = f"is not bound, although its pod {pod.metadata.name} has node {pod.spec.node_name}: no volume has been created for it yet"
        return not_as_wanted(kind, found, Reason.NOT_PROVISIONED, text)
    explained = scene.explain_pod(pod, briefly)
    line = explained.cause.removeprefix(f"{metadata.namespace}/{pod.metadata.name} ")
    text = f"is not bound: it waits for a node for its pod {pod.metadata.name}, which {line}"
    return of_pod(not_as_wanted(kind, found, Reason.WAITS_FOR_CONSUMER, text), explained)


def _uses(pod: core_v1.Pod, found: core_v1.PersistentVolumeClaim) -> bool:
    return any(
        volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == found.metadata.name
        for volume in pod.spec.volumes
    )


def _no_volume(scene: Scene, found: core_v1.PersistentVolumeClaim, name: str, said: list[str]) -> Explanation:
    volumes = [each for each in scene.what_if.all(core_v1.PersistentVolume) if volume_matching.class_of(each) == name]
    of_class = f"of class {name}" if name else "without a class"
    kind = "PersistentVolumeClaim"
    if any(volume_matching.suits(volume, found) for volume in volumes):
        text = f"is not bound, although a volume {of_class} fits: its controller is working on it"
        return not_as_wanted(kind, found, Reason.PROGRESSING, text, details=said)
    reasons: dict[str, list[str]] = {}
    for volume in volumes:
        why = _why_not(volume, found)
        reasons.setdefault(why, []).append(volume.metadata.name)
    told = "; ".join(f"{listed(names)}: {why}" for why, names in reasons.items())
    text = (
        f"is not bound: none of {count(len(volumes), 'PersistentVolume')} {of_class} suits it ({told})"
        if volumes
        else (f"is not bound: there is no PersistentVolume {of_class}")
    )
    advice = list(_volume_advice(volumes, found))
    return not_as_wanted(kind, found, Reason.NO_VOLUME, text, details=said, advice=advice)


def _why_not(volume: core_v1.PersistentVolume, found: core_v1.PersistentVolumeClaim) -> str:
    if volume_matching.capacity(volume) < volume_matching.size(found):
        has, asked = volume.spec.capacity.get("storage"), found.spec.resources.requests.get("storage")
        return f"has {has}, and {asked} is asked for"
    wrong = volume_matching.mismatch(volume, found)
    if wrong:
        return wrong
    user = volume.spec.claim_ref
    if user is None:
        return f"is {volume.status.phase or 'not free'}"
    whose = f"claim {user.namespace}/{user.name}"
    return (
        f"was released by {whose}, and is retained for it"
        if volume.status.phase == "Released"
        else f"is bound to {whose}"
    )


def _volume_advice(volumes: Sequence[core_v1.PersistentVolume], found: core_v1.PersistentVolumeClaim) -> Iterator[str]:
    """How a claim could get one of the existing volumes, or another one."""
    name = found.metadata.name
    for volume in volumes:
        released = volume.status.phase == "Released" and not volume_matching.mismatch(volume, found)
        if released and volume_matching.capacity(volume) >= volume_matching.size(found):
            yield f"if its data may be used again: remove spec.claimRef of PersistentVolume {volume.metadata.name}"
            return
    free = [each for each in volumes if each.spec.claim_ref is None]
    largest = max(free, key=volume_matching.capacity, default=None)
    if largest is not None and volume_matching.capacity(largest) < volume_matching.size(found):
        amount = largest.spec.capacity.get("storage")
        yield f"recreate PersistentVolumeClaim {name} with at most {amount}, or add a larger PersistentVolume"
        return
    yield f"add a PersistentVolume that suits PersistentVolumeClaim {name}, or name a StorageClass that provisions volumes"
