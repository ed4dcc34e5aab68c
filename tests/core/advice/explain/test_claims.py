"""Causes before the scheduler looks at a pod, and after it has a node."""

from __future__ import annotations

import pytest

from allot.core.advice.explain.answer import Explainer, NotFound
from allot.core.advice.explain.report import Reason, State
from core.advice.explain.clusters import (
    NOW,
    asks,
    claim,
    device_class,
    event,
    explained,
    gpu,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    template,
    templated,
    wanting,
)

GPU_NODE = [node("n"), pool("n", gpus(1)), device_class()]


def from_template(name: str, template_name: str, **more: object) -> dict[str, object]:
    return pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template_name}], **more)  # type: ignore[arg-type]


def test_a_scheduling_gate() -> None:
    found = explained(GPU_NODE, templated("train", asks(), schedulingGates=[{"name": "example.com/wait"}]))
    assert found.reason is Reason.SCHEDULING_GATE
    assert "example.com/wait" in found.cause
    assert found.changes[0].verified


def test_a_scheduler_that_nobody_has_seen() -> None:
    found = explained(GPU_NODE, templated("train", asks(), schedulerName="volcano"))
    assert found.reason is Reason.NO_SUCH_SCHEDULER
    assert found.changes[0].text == "set spec.schedulerName to default-scheduler (recreate the pod)"


def test_a_scheduler_that_has_placed_a_pod_is_believed_to_run() -> None:
    other = running("other", "n", schedulerName="volcano")
    found = explained(GPU_NODE, other, templated("train", asks(), schedulerName="volcano"))
    assert found.reason is Reason.FITS


def test_a_template_that_does_not_exist_with_one_that_is_similar() -> None:
    found = explained(GPU_NODE, template("single-gpu", asks()), from_template("train", "singel-gpu"))
    assert found.reason is Reason.TEMPLATE_MISSING
    assert 'did you mean "single-gpu"?' in found.cause
    assert found.changes[0].node == "n"


def test_a_template_in_another_namespace_can_be_copied() -> None:
    found = explained(GPU_NODE, template("single", asks(), namespace="ml"), from_template("train", "single"))
    assert "there is one in namespace ml" in found.cause
    assert found.changes[0].text == "copy ResourceClaimTemplate ml/single to namespace default"


def test_a_claim_that_does_not_exist() -> None:
    found = explained(GPU_NODE, wanting("train", "missing"))
    assert found.reason is Reason.CLAIM_MISSING
    assert "ResourceClaim default/missing, which does not exist" in found.cause
    assert found.changes[0].text == "create ResourceClaim default/missing, for 1 device of class gpu"


def test_a_template_named_as_a_claim() -> None:
    found = explained(GPU_NODE, template("single", asks()), wanting("train", "single"))
    assert "it belongs in resourceClaimTemplateName" in found.cause
    assert found.changes[0].verified


def test_a_claim_that_is_being_deleted() -> None:
    leaving = claim("shared", asks(), status=holding("n", "gpu-0", users=("old",)))
    leaving["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["x/y"]}
    found = explained(GPU_NODE, leaving, running("old", "n", "shared"), wanting("train", "shared"))
    assert found.reason is Reason.CLAIM_BEING_DELETED
    assert "still used by pod old" in found.cause
    assert found.changes[0].verified


def test_a_claim_with_too_many_users() -> None:
    users = tuple(f"p{number}" for number in range(256))
    full = claim("shared", asks(), status=holding("n", "gpu-0", users=users))
    two = [node("n"), pool("n", gpus(2)), device_class()]
    found = explained(two, full, wanting("train", "shared"))
    assert found.reason is Reason.CLAIM_FULL
    assert found.changes[0].text.startswith("create a second claim")


@pytest.mark.parametrize(
    ("kind", "owner", "first", "told"),
    [
        (
            "Job",
            "Job sim",
            "wait until one of these pods ends, and set parallelism: 256 in Job sim",
            "runs more at once",
        ),
        (
            "StatefulSet",
            "StatefulSet sim",
            "run the pods of StatefulSet sim beyond 256 as a second StatefulSet",
            "has more",
        ),
    ],
)
def test_a_claim_that_one_workload_fills_is_not_recreated_for_all_its_pods(
    kind: str, owner: str, first: str, told: str
) -> None:
    users = tuple(f"p{number}" for number in range(256))
    full = claim("shared", asks(), status=holding("n", "gpu-0", users=users))
    made = [running(user, "n", "shared", cpu="1m") for user in users]
    waiting = wanting("train", "shared")
    for each in (*made, waiting):
        each["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": kind, "name": "sim", "uid": "u", "controller": True}
        ]
    large = node("n")
    large["status"]["allocatable"]["pods"] = "500"
    found = explained(large, pool("n", gpus(2)), device_class(), full, made, waiting)
    assert found.cause.endswith(f"a claim allows at most 256: {owner} {told}")
    assert found.changes[0].text.startswith(first)


def test_a_claim_that_a_controller_has_to_allocate() -> None:
    classic = claim("slots", asks())
    classic["metadata"]["annotations"] = {"allot.dev/allocation-controller": "slots.example.com"}
    found = explained(GPU_NODE, classic, wanting("train", "slots"))
    assert found.reason is Reason.CLAIM_CONTROLLER
    assert "must be allocated by controller slots.example.com, which has not done so yet" in found.cause
    assert "DRAControlPlaneController" in found.changes[1].text
    allocated = {**classic, "status": holding("n", "gpu-0")}
    assert explained(GPU_NODE, allocated, wanting("train", "slots")).reason is Reason.FITS


def test_a_quota_that_is_used_up() -> None:
    name = "gpu.deviceclass.resource.k8s.io/devices"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {name: "1"}},
        "status": {"hard": {name: "1"}, "used": {name: "1"}},
    }
    said = event("train", "FailedResourceClaimCreation", "exceeded quota: gpus")
    found = explained(GPU_NODE, quota, template("single", asks()), from_template("train", "single"), said)
    assert found.reason is Reason.QUOTA
    assert "ResourceQuota default/gpus" in found.cause
    assert found.changes[0].text == f"raise ResourceQuota default/gpus to {name}=2"


def flexible(*alternatives: tuple[str, str, int]) -> dict[str, object]:
    """A template with alternatives: name, class and count."""
    listed = [
        {"name": name, "deviceClassName": of, "allocationMode": "ExactCount", "count": count}
        for name, of, count in alternatives
    ]
    return template("any", {"devices": {"requests": [{"name": "gpu", "firstAvailable": listed}]}})


def class_quota(hard: int, used: int = 0) -> dict[str, object]:
    """A ResourceQuota for devices of class old."""
    name = "old.deviceclass.resource.k8s.io/devices"
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {name: str(hard)}},
        "status": {"hard": {name: str(hard)}, "used": {name: str(used)}},
    }


def test_a_quota_charges_every_class_of_a_list_of_alternatives() -> None:
    cluster = [*GPU_NODE, device_class("old"), from_template("train", "any")]
    asked = flexible(("new", "gpu", 1), ("classic", "old", 4))
    found = explained(cluster, class_quota(3, 1), asked)
    assert found.cause.endswith(
        "3 are allowed and 1 in use; request gpu is charged for every class in its firstAvailable list, whichever it gets, so "
        "alternative classic counts, too"
    )
    texts = [each.text for each in found.changes if each.verified]
    assert (
        "remove alternative classic from request gpu of ResourceClaimTemplate default/any (recreate the template, then the pod)"
        in texts
    )
    same = explained(cluster, class_quota(3), flexible(("many", "old", 4), ("few", "old", 1)))
    assert (
        "is charged for the largest alternative in its firstAvailable list, whichever it gets, so alternative many counts"
        in same.cause
    )


def test_alternatives_that_are_all_too_much_for_a_quota_are_not_explained_by_the_list() -> None:
    cluster = [*GPU_NODE, device_class("old"), from_template("train", "any")]
    found = explained(cluster, class_quota(1), flexible(("many", "old", 4), ("few", "old", 2)))
    assert "ResourceQuota default/gpus does not allow its claim" in found.cause and "firstAvailable" not in found.cause
    plain = explained(cluster, class_quota(1), template("any", asks(count=2, of="old")))
    assert "ResourceQuota default/gpus does not allow its claim" in plain.cause and "firstAvailable" not in plain.cause


def test_a_template_that_is_to_be_changed_has_to_be_recreated_where_another_exists_too() -> None:
    wrong = asks('device.attributes["gpu.nvidia.com"].productName == "NVIDIA H100"')
    objects = templated("train", wrong)
    found = explained(GPU_NODE, template("any", asks()), objects)
    text = next(each.text for each in found.changes if "resourceClaimTemplateName: any" in each.text)
    assert "ResourceClaimTemplate default/train-template and recreate that template (recreate the pod)" in text
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    objects[2]["metadata"]["ownerReferences"] = [reference]
    of_set = explained(GPU_NODE, template("any", asks()), objects)
    text = next(each.text for each in of_set.changes if "resourceClaimTemplateName: any" in each.text)
    assert text.startswith("set resourceClaimTemplateName: any in StatefulSet s (that template already exists), or ")
    assert text.endswith("ResourceClaimTemplate default/train-template and recreate that template, then the pods")


def test_admin_access_needs_a_label() -> None:
    spec = asks()
    spec["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "a"}}}
    found = explained(GPU_NODE, namespace, template("all", spec), from_template("train", "all"))
    assert found.reason is Reason.ADMIN_ACCESS
    assert found.changes[0].patches[0].patch[0]["value"] == {
        "team": "a",
        "resource.kubernetes.io/admin-access": "true",
    }


def test_a_claim_that_the_controller_has_not_made_yet() -> None:
    found = explained(GPU_NODE, template("single", asks()), from_template("train", "single"))
    assert found.reason is Reason.CLAIM_NOT_CREATED
    assert "has not created its claim gpu from ResourceClaimTemplate default/single yet" in found.cause


def test_a_class_that_does_not_exist() -> None:
    found = explained(GPU_NODE, templated("train", asks(of="gpus")))
    assert found.reason is Reason.CLASS_MISSING
    assert 'did you mean "gpu"?' in found.cause
    assert found.changes[0].text.startswith("ask for class gpu in request gpu")


def test_a_pod_that_is_being_deleted() -> None:
    leaving = pod("train")
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert explained(node("n"), leaving).reason is Reason.BEING_DELETED


def test_devices_that_are_not_ready_yet() -> None:
    conditions = {"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    status = holding("n", "gpu-0", users=("train",), since="2027-01-15T07:59:00Z")
    status["allocation"]["devices"]["results"][0] |= conditions
    found = explained(
        [node("n"), pool("n", [gpu(**conditions)]), device_class()], templated("train", asks(), status=status)
    )
    assert found.reason is Reason.BINDING_CONDITIONS
    assert "has not set binding condition attached to True" in found.cause
    assert found.changes[0].verified
    assert NOW == 1_800_000_000.0


# --- after the scheduler ---


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.nvidia.com is not registered",
            "DRA driver gpu.nvidia.com is not registered with the kubelet of node n",
        ),
        (
            "Failed to prepare dynamic resources: unknown GPU sharing strategy: TimeSlicing",
            "the driver's feature gate TimeSlicingSettings is disabled",
        ),
        (
            'Failed to prepare dynamic resources: strict decoding error: unknown field "sharing.strategyy"',
            'node n cannot prepare its devices: strict decoding error: unknown field "sharing.strategyy"',
        ),
    ],
)
def test_devices_that_cannot_be_prepared(message: str, cause: str) -> None:
    bound = wanting("train", "mine")
    bound["spec"]["nodeName"] = "n"
    mine = claim("mine", asks(), status=holding("n", "gpu-0", users=("train",)))
    found = explained(GPU_NODE, mine, bound, event("train", "FailedPrepareDynamicResources", message))
    assert (found.state, found.reason) == (State.STARTING, Reason.PREPARE)
    assert cause in found.cause
    assert found.devices[0].device == "gpu.nvidia.com/n/gpu-0"


def test_a_pod_on_a_node_that_is_gone() -> None:
    found = explained(node("n"), pod("train", nodeName="gone"))
    assert "node gone no longer exists" in found.cause


# --- claims, and what is not there ---


def test_a_claim_is_explained_by_the_pod_that_waits_for_it() -> None:
    explainer = Explainer(snapshot([node("n"), device_class()], templated("train", asks())))
    found = explainer.claim("default", "train-gpu-x")
    assert found.kind == "ResourceClaim"
    assert found.cause.startswith("claim default/train-gpu-x has no devices yet: pod default/train is pending because")


def test_a_claim_that_no_pod_names_waits_for_one() -> None:
    found = Explainer(snapshot(GPU_NODE, claim("mine", asks()))).claim("default", "mine")
    assert found.reason is Reason.UNUSED


def naming(name: str, wanted: str, field: str = "resourceClaimName", **more: object) -> dict[str, object]:
    return pod(name, resourceClaims=[{"name": "gpu", field: wanted}], **more)  # type: ignore[arg-type]


def test_a_claim_whose_name_a_pod_misspells_is_told_with_that_pod() -> None:
    found = Explainer(snapshot(GPU_NODE, claim("train-gpu", asks()), naming("train", "train-gpus"))).claim(
        "default", "train-gpu"
    )
    assert found.reason is Reason.UNUSED
    assert found.cause == (
        "claim default/train-gpu has no devices because no pod uses it: pod train names claim train-gpus instead, which does not "
        "exist (spec.resourceClaims[0].resourceClaimName)"
    )
    assert found.changes[0].text == "set resourceClaimName: train-gpu in pod train (recreate the pod)"
    assert found.changes[0].verified


def test_several_pods_that_misspell_a_claim_are_all_named() -> None:
    pods = [naming(each, "train-gpus") for each in ("b", "a")]
    found = Explainer(snapshot(GPU_NODE, claim("train-gpu", asks()), pods)).claim("default", "train-gpu")
    assert "no pod uses it: pods a and b name claim train-gpus instead" in found.cause


def test_a_misspelt_claim_is_corrected_first_even_if_its_devices_are_missing() -> None:
    cluster = snapshot(GPU_NODE, claim("train-gpu", asks(count=9)), naming("train", "train-gpus"))
    found = Explainer(cluster).claim("default", "train-gpu")
    assert found.changes[0].text == "set resourceClaimName: train-gpu in pod train (recreate the pod)"
    assert not found.changes[0].verified


def test_a_claim_that_a_pod_names_as_a_template_is_told_with_that_pod() -> None:
    user = naming("train", "mine", "resourceClaimTemplateName")
    found = Explainer(snapshot(GPU_NODE, claim("mine", asks()), user)).claim("default", "mine")
    assert (
        "no pod uses it: pod train names it as a ResourceClaimTemplate, and there is none of that name" in found.cause
    )
    assert found.changes[0].text == "set resourceClaimName: mine in pod train (recreate the pod)"


@pytest.mark.parametrize(
    "others",
    [
        [naming("train", "data-set")],
        [naming("train", "train-gpus", status={"phase": "Succeeded"})],
        [naming("train", "train-gpu-10"), claim("train-gpu-1", asks())],
        [naming("train", "train-gpus"), claim("train-gpus", asks())],
    ],
    ids=["another name", "a pod that has ended", "a claim that is more like it", "a claim that exists"],
)
def test_a_claim_that_nobody_means_has_no_user(others: list[dict[str, object]]) -> None:
    found = Explainer(snapshot(GPU_NODE, claim("train-gpu", asks()), others)).claim("default", "train-gpu")
    assert "no pod uses it: devices are allocated when" in found.cause
    assert not found.changes


def test_a_claim_that_has_devices_is_told_with_its_users() -> None:
    held = claim("mine", asks(), status=holding("n", "gpu-0", users=("a",)))
    found = Explainer(snapshot(GPU_NODE, held, running("a", "n", "mine"))).claim("default", "mine")
    assert found.cause == ("claim default/mine is allocated: device gpu.nvidia.com/n/gpu-0, used by pod default/a")


@pytest.mark.parametrize(
    ("namespace", "name", "hint"),
    [("default", "trian", "did you mean train?"), ("ml", "train", "there is one in namespace default: -n default")],
)
def test_what_is_not_there_is_told_with_what_was_perhaps_meant(namespace: str, name: str, hint: str) -> None:
    explainer = Explainer(snapshot(GPU_NODE, pod("train")))
    with pytest.raises(NotFound) as raised:
        explainer.pod(namespace, name)
    assert raised.value.hint == hint


def test_pods_that_do_not_run_are_listed() -> None:
    done = pod("done", nodeName="n", status={"phase": "Succeeded"})
    explainer = Explainer(snapshot(GPU_NODE, pod("b"), pod("a"), running("c", "n"), done))
    assert explainer.pending(None) == [("default", "a"), ("default", "b")]
    assert explainer.pending("ml") == []
