"""Deployments: one look after the other, with a ReplicaSet controller and a kubelet that do at once what they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from allot.core.lifecycle.actions import Action, Create, Delete, RequeueAfter, Update
from allot.core.lifecycle.times import time_of
from allot.core.model.apps_v1 import Deployment, ReplicaSet
from allot.core.workloads.deployment import ROLLBACK_TO, View, reconcile
from allot.core.workloads.whole import Whole
from core.workloads.workload_builders import NOW_S, conditions, made, notes, pod, status_of, template, workload

Object = dict[str, Any]
REVISION = "deployment.kubernetes.io/revision"


class World:
    """A Deployment `x` with its ReplicaSets. works: whether pods of an image become available."""

    def __init__(self, **spec: Any) -> None:
        spec = {"replicas": 3, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, **spec}
        spec.setdefault("strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
        self.deployment: Object = dict(workload(Deployment, **spec).source)
        self.sets: dict[str, Object] = {}
        self.others: dict[str, Object] = {}
        self.broken: set[str] = set()
        self.now_s = NOW_S
        self.failure = ""
        self.running_pods: list[Any] = []
        self.events: list[str] = []
        self.actions: Sequence[Action] = ()

    def set(self, **spec: Any) -> None:
        """The user changes something."""
        metadata = self.deployment["metadata"]
        self.deployment |= {
            "spec": {**self.deployment["spec"], **spec},
            "metadata": {**metadata, "generation": metadata["generation"] + 1},
        }

    def annotate(self, **annotations: str) -> None:
        metadata = self.deployment["metadata"]
        self.deployment["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}

    def look(self) -> bool:
        """One look, and what it asks for; whether anything was asked for."""
        wholes = {name: made(ReplicaSet, each) for name, each in (self.sets | self.others).items()}
        view = View(
            replica_sets=[whole for name, whole in wholes.items() if name in self.sets],
            named=wholes.get,
            pods_of=lambda _uid: self.running_pods,
            failure=self.failure,
        )
        self.actions = reconcile(made(Deployment, self.deployment), view, {}, self.now_s)
        self.events += notes(self.actions)
        done = False
        for action in self.actions:
            if isinstance(action, Create | Update | Delete):
                self._do(action)
                done = True
        return done

    def _do(self, action: Create | Update | Delete) -> None:
        if isinstance(action, Delete):
            del self.sets[action.name]
            return
        object_: Object = msgspec.json.decode(msgspec.json.encode(action.object))
        if action.resource.plural == "deployments":
            self.deployment = object_
            return
        metadata = object_["metadata"]
        metadata["generation"] = metadata.get("generation", 0) + 1
        metadata.setdefault("uid", f"uid-{metadata['name']}")
        metadata.setdefault("creationTimestamp", time_of(NOW_S + len(self.sets)))
        self.sets[metadata["name"]] = object_

    def work(self) -> None:
        """The ReplicaSets get what they ask for."""
        for each in self.sets.values():
            replicas = each["spec"]["replicas"]
            is_broken = image_of(each) in self.broken
            kept = min(replicas, each.get("status", {}).get("availableReplicas", 0)) if is_broken else replicas
            each["status"] = {
                "replicas": replicas,
                "readyReplicas": kept,
                "availableReplicas": kept,
                "terminatingReplicas": 0,
                "observedGeneration": each["metadata"]["generation"],
            }

    def settle(self, looks_max: int = 60) -> None:
        """Until nothing changes any more."""
        for _ in range(looks_max):
            is_changed = self.look()
            before = msgspec.json.encode(self.sets)
            self.work()
            if not is_changed and before == msgspec.json.encode(self.sets):
                return
        raise AssertionError(f"still changing: {self.sizes()}")

    def sizes(self) -> dict[str, int]:
        """Sizes of ReplicaSets by image."""
        return {image_of(each): each["spec"]["replicas"] for each in self.sets.values()}

    def progress(self) -> tuple[str, str, str]:
        return conditions(self.deployment["status"])["Progressing"]


def image_of(set_: Object) -> str:
    return str(set_["spec"]["template"]["spec"]["containers"][0]["image"])


def test_a_new_deployment_makes_its_replica_set() -> None:
    world = World()
    world.annotate(team="a", **{"kubectl.kubernetes.io/last-applied-configuration": "{}"})
    world.look()
    ((name, set_),) = world.sets.items()
    hash_ = name.removeprefix("x-")
    labels = {"app": "x", "pod-template-hash": hash_}
    assert set_["metadata"]["labels"] == labels == set_["spec"]["template"]["metadata"]["labels"]
    assert set_["spec"]["selector"] == {"matchLabels": labels} and set_["spec"]["replicas"] == 3
    assert set_["metadata"]["annotations"] == {
        "team": "a",
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    assert world.events == [f"Scaled up replica set {name} from 0 to 3"]
    assert world.progress() == ("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
    assert world.deployment["metadata"]["annotations"][REVISION] == "1"
    world.settle()
    assert world.progress() == ("True", "NewReplicaSetAvailable", f'ReplicaSet "{name}" has successfully progressed.')
    available = conditions(world.deployment["status"])["Available"]
    assert available == ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")


def test_a_rollout_goes_step_by_step_and_back() -> None:
    world = World()
    world.settle()
    world.events.clear()
    world.set(template=template("app:2"))
    world.settle()
    assert world.sizes() == {"app:1": 0, "app:2": 3}
    steps = [event.split(" from ")[1] for event in world.events if event.startswith("Scaled")]
    assert steps == ["0 to 1", "3 to 2", "1 to 2", "2 to 1", "2 to 3", "1 to 0"]
    world.set(template=template("app:1"))
    world.settle()
    first = next(each for each in world.sets.values() if image_of(each) == "app:1")
    assert world.sizes() == {"app:1": 3, "app:2": 0} and len(world.sets) == 2
    annotations = first["metadata"]["annotations"]
    assert (annotations[REVISION], annotations["deployment.kubernetes.io/revision-history"]) == ("3", "1")
    assert world.deployment["metadata"]["annotations"][REVISION] == "3"


def test_a_rollout_that_does_not_get_ahead_is_overdue_and_told_so() -> None:
    world = World()
    world.settle()
    world.broken = {"app:2"}
    world.set(template=template("app:2"))
    world.settle()
    assert world.sizes() == {"app:1": 3, "app:2": 1}
    name = next(name for name, each in world.sets.items() if image_of(each) == "app:2")
    (wait,) = [action.seconds for action in world.actions if isinstance(action, RequeueAfter)]
    assert wait == 601.0
    world.now_s += 601
    world.settle()
    assert world.progress() == ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')
    assert not any(isinstance(action, RequeueAfter) for action in world.actions)
    world.broken = set()
    world.settle()
    assert world.progress()[:2] == ("True", "NewReplicaSetAvailable")


def test_without_a_deadline_progress_is_not_told() -> None:
    world = World(progressDeadlineSeconds=2**31 - 1)
    world.settle()
    assert set(conditions(world.deployment["status"])) == {"Available"}


def test_recreating_waits_for_every_old_pod() -> None:
    world = World(strategy={"type": "Recreate"})
    world.settle()
    world.running_pods = [pod("old", deleted=True)]
    world.set(template=template("app:2"))
    world.settle()
    assert world.sizes() == {"app:1": 0}
    world.running_pods = [pod("old", phase="Succeeded")]
    world.settle()
    assert world.sizes() == {"app:1": 0, "app:2": 3}


def test_while_paused_only_the_size_changes() -> None:
    world = World()
    world.settle()
    world.set(paused=True, template=template("app:2"), replicas=5)
    world.settle()
    assert world.sizes() == {"app:1": 5}
    assert world.progress() == ("Unknown", "DeploymentPaused", "Deployment is paused")
    world.set(paused=False)
    world.look()
    assert conditions(status_of(world.actions))["Progressing"][1] in ("DeploymentResumed", "NewReplicaSetCreated")
    world.settle()
    assert world.sizes() == {"app:1": 0, "app:2": 5}


def test_scaling_in_the_middle_of_a_rollout_is_proportional() -> None:
    rolling = {"maxSurge": 3, "maxUnavailable": 2}
    world = World(replicas=10, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    world.settle()
    world.broken = {"app:2"}
    world.set(template=template("app:2"))
    world.settle()
    assert world.sizes() == {"app:1": 8, "app:2": 5}
    world.set(replicas=15)
    world.look()
    assert world.sizes() == {"app:1": 11, "app:2": 7}


def test_history_is_kept_up_to_its_limit() -> None:
    world = World(revisionHistoryLimit=2)
    for number in range(1, 7):
        world.set(template=template(f"app:{number}"))
        world.settle()
    assert sorted(world.sizes()) == ["app:4", "app:5", "app:6"]
    world.set(revisionHistoryLimit=0)
    world.settle()
    assert world.sizes() == {"app:6": 3}


def test_a_name_that_is_taken_by_another_template_is_a_collision() -> None:
    world = World()
    world.look()
    ((name, set_),) = world.sets.items()
    world.sets = {}
    world.others = {name: {**set_, "metadata": {**set_["metadata"], "ownerReferences": []}}}
    world.deployment["status"] = {}
    world.look()
    assert not world.sets and world.deployment["status"]["collisionCount"] == 1
    world.settle()
    (other,) = world.sets
    assert other != name and world.deployment["status"]["collisionCount"] == 1


def test_a_replica_set_that_cannot_be_made_is_told() -> None:
    world = World()
    world.failure = "replicasets is forbidden: quota"
    world.look()
    status, create = (action for action in world.actions if isinstance(action, Create | Update))
    assert isinstance(status, Update) and isinstance(create, Create) and create.on_failure is not None
    name = create.object["metadata"]["name"]  # type: ignore[index]
    message = f'Failed to create new replica set "{name}": replicasets is forbidden: quota'
    assert conditions(status_of(world.actions))["Progressing"] == ("False", "ReplicaSetCreateError", message)
    assert create.on_failure.note + "quota" == f'Failed to create new replica set "{name}": quota'


def test_what_keeps_a_replica_set_from_its_pods_is_copied() -> None:
    world = World()
    world.look()
    world.work()
    (set_,) = world.sets.values()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    set_["status"] |= {"availableReplicas": 0, "conditions": [failure]}
    world.look()
    assert conditions(world.deployment["status"])["ReplicaFailure"] == ("True", "FailedCreate", "exceeded quota")
    world.settle()
    assert "ReplicaFailure" not in conditions(world.deployment["status"])


def test_settings_and_annotations_follow_the_deployment() -> None:
    world = World()
    world.settle()
    world.annotate(cause="because")
    world.set(minReadySeconds=7)
    world.settle()
    (set_,) = world.sets.values()
    assert set_["spec"]["minReadySeconds"] == 7 and set_["metadata"]["annotations"]["cause"] == "because"


@pytest.mark.parametrize(
    ("revision", "image", "event"),
    [
        ("0", "app:1", 'Rolled back deployment "x" to revision 1'),
        ("1", "app:1", 'Rolled back deployment "x" to revision 1'),
        ("2", "app:2", 'The rollback revision contains the same template as current deployment "x"'),
        ("9", "app:2", "Unable to find the revision to rollback to."),
    ],
)
def test_the_annotation_of_old_rolls_back(revision: str, image: str, event: str) -> None:
    world = World()
    world.settle()
    world.set(template=template("app:2"))
    world.settle()
    world.annotate(**{ROLLBACK_TO: revision})
    world.look()
    assert ROLLBACK_TO not in world.deployment["metadata"]["annotations"] and world.events[-1] == event
    assert image_of(world.deployment) == image
    assert "pod-template-hash" not in world.deployment["spec"]["template"]["metadata"]["labels"]


def test_a_deployment_that_selects_everything_does_nothing_but_say_so() -> None:
    world = World(selector={})
    world.look()
    assert not world.sets and world.deployment["status"]["observedGeneration"] == 1
    assert world.events == ["This deployment is selecting all pods. A non-empty selector is required."]


def test_a_deployment_that_goes_only_counts() -> None:
    world = World()
    world.settle()
    world.set(template=template("app:2"))
    world.deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.settle()
    assert world.sizes() == {"app:1": 3}


@pytest.mark.parametrize(
    ("before", "after"),
    [("3546343826724305832", "3546343826724305833"), ("9" * 19, "1"), ("9" * 5000, "1"), ("many", "1")],
)
def test_numbers_of_templates_have_64_bits(before: str, after: str) -> None:
    world = World()
    world.settle()
    (first,) = world.sets.values()
    first["metadata"]["annotations"][REVISION] = before
    world.set(template=template("app:2"))
    world.settle()
    second = next(each for each in world.sets.values() if image_of(each) == "app:2")
    assert second["metadata"]["annotations"][REVISION] == after
    assert world.deployment["metadata"]["annotations"][REVISION] == after


def test_an_orphan_is_adopted_as_the_new_replica_set() -> None:
    world = World()
    world.look()
    (set_,) = world.sets.values()
    set_["metadata"]["ownerReferences"] = []
    orphan: Whole[Any] = made(ReplicaSet, set_)
    view = View(replica_sets=[orphan], named=lambda _name: None, pods_of=lambda _uid: ())
    deployment = made(Deployment, world.deployment)
    (question,) = reconcile(deployment, view, {}, NOW_S)
    actions = reconcile(deployment, view, {question: dict(deployment.source)}, NOW_S)  # type: ignore[dict-item]
    assert not any(isinstance(action, Create) for action in actions)
