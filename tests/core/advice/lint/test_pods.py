"""Pods and the claims that they use or do not use."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, findings, fixed, the

_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
"""


def _deployment(containers: str, claims: str = "- {name: gpu, resourceClaimTemplateName: t}") -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: d}}
spec:
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      containers:
      {containers}
      resourceClaims:
      {claims}
  strategy: {{type: Recreate}}
"""


_USES = "- {name: one, image: i, resources: {claims: [{name: gpu}]}}"


def test_a_workload_whose_container_uses_its_claim_is_in_order() -> None:
    assert findings(_TEMPLATE + _deployment(_USES)) == []


def test_a_claim_that_no_container_uses_is_warned_of() -> None:
    found = the(_TEMPLATE + _deployment("- {name: one, image: i}"), "unused-pod-claim")
    assert (found.severity, found.line) == (Severity.WARNING, 17)


def test_containers_that_share_a_claim_are_noted() -> None:
    found = the(_TEMPLATE + _deployment(f"{_USES}\n      {_USES.replace('one', 'two')}"), "containers-share-claim")
    assert found.severity is Severity.NOTE
    assert "one, two" in found.message


def test_a_template_that_no_pod_uses_is_noted_where_there_are_pods() -> None:
    other = _TEMPLATE.replace("name: t}", "name: other}")
    assert the(other + _TEMPLATE + _deployment(_USES), "unused-claim").object == "ResourceClaimTemplate other"
    assert not by_rule(other, "unused-claim")


def test_claims_of_pod_groups_are_used() -> None:
    group = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  resourceClaims:
  - {name: shared, resourceClaimTemplateName: other}
---
"""
    other = _TEMPLATE.replace("name: t}", "name: other}")
    assert not by_rule(other + _TEMPLATE + group + _deployment(_USES), "unused-claim")


def test_asking_for_the_same_hardware_twice_is_warned_of() -> None:
    both = _USES.replace("claims:", "limits: {nvidia.com/gpu: 1}, claims:")
    assert the(_TEMPLATE + _deployment(both), "extended-resource-and-claim").line == 15
    other = both.replace("nvidia.com/gpu", "example.com/fpga")
    assert not by_rule(_TEMPLATE + _deployment(other), "extended-resource-and-claim")


def test_pods_inside_custom_resources_are_found() -> None:
    text = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r}
spec:
  headGroupSpec:
    template:
      spec:
        containers: [{name: c, image: i}]
        resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
"""
    assert the(_TEMPLATE + text, "unused-pod-claim").object == "RayCluster r"


# --- replicas that share a claim ---

_CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}
---
"""
_SHARING = _CLAIM.replace(
    "}}]}}",
    "}}], config: [{opaque: {driver: gpu.nvidia.com, parameters: {apiVersion: resource.nvidia.com/v1beta1, "
    "kind: GpuConfig, sharing: {strategy: TimeSlicing}}}}]}}",
)
_NAMES_CLAIM = _deployment(_USES, "- {name: gpu, resourceClaimName: shared}")


def _replicas(count: int) -> str:
    return _NAMES_CLAIM.replace("spec:\n  selector", f"spec:\n  replicas: {count}\n  selector", 1)


def test_replicas_that_name_one_claim_are_told_that_they_share_it() -> None:
    found = the(_CLAIM + _replicas(3), "replicas-share-claim")
    assert (found.severity, found.line) == (Severity.WARNING, 18)
    assert found.message == '3 pods share the devices of ResourceClaim "shared": none has its own device'
    assert found.fix is not None
    assert "resourceClaimTemplateName" in found.fix.text


@pytest.mark.parametrize("text", [_CLAIM + _replicas(1), _CLAIM + _NAMES_CLAIM, _SHARING + _replicas(3)])
def test_one_replica_and_claims_that_are_meant_to_be_shared_are_fine(text: str) -> None:
    assert findings(text) == []


def test_more_replicas_than_a_claim_can_be_reserved_for_are_an_error() -> None:
    assert the(_CLAIM + _replicas(257), "replicas-share-claim").severity is Severity.ERROR


def test_the_pods_of_a_daemon_set_cannot_use_one_claim() -> None:
    found = the(_CLAIM + _NAMES_CLAIM.replace("Deployment", "DaemonSet"), "replicas-share-claim")
    assert "on other nodes they wait" in found.message


def _custom(kind: str, spec: str) -> str:
    return f"apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


_INNER = "{spec: {containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}], resourceClaims: [{name: gpu, resourceClaimName: shared}]}}"


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        (f"{{replicatedJobs: [{{replicas: 2, template: {{spec: {{parallelism: 2, template: {_INNER}}}}}}}]}}", 4),
        (f"{{replicas: 2, leaderWorkerTemplate: {{size: 3, workerTemplate: {_INNER}}}}}", 4),
        (f"{{workerGroupSpecs: [{{replicas: 2, template: {_INNER}}}]}}", 2),
        (f"{{pytorchReplicaSpecs: {{Worker: {{replicas: 7, template: {_INNER}}}}}}}", 7),
        (f"{{tasks: [{{replicas: 5, template: {_INNER}}}]}}", 5),
        (f"{{predictor: {{minReplicas: 2, {_INNER[8:-2]}}}}}", 2),
    ],
)
def test_replicas_in_custom_resources_are_counted(spec: str, pods: int) -> None:
    assert the(_CLAIM + _custom("Thing", spec), "replicas-share-claim").message.startswith(f"{pods} pods share")


# --- claims of pods in custom resources ---


def test_a_claim_that_a_custom_resources_pod_has_not_is_told_with_the_nearest() -> None:
    text = _CLAIM + _custom("JobSet", f"{{template: {_INNER.replace('[{name: gpu}]', '[{name: gpus}]')}}}")
    found = the(text, "invalid-value")
    assert found.severity is Severity.WARNING
    assert found.field == "spec.template.spec.containers[0].resources.claims[0]"
    assert found.object == "JobSet x"
    assert found.fix is not None
    assert found.fix.text == 'did you mean "gpu"?'
    assert not by_rule(text, "unused-pod-claim")


def test_a_misspelt_field_of_a_claim_in_a_custom_resource_is_fixed() -> None:
    text = _CLAIM + _custom("JobSet", f"{{template: {_INNER.replace('resourceClaimName', 'resourceclaimname')}}}")
    assert the(text, "unknown-field").severity is Severity.WARNING
    assert "resourceClaimName: shared" in fixed(text)


def test_containers_beside_the_list_use_claims_too() -> None:
    predictor = "{predictor: {resourceClaims: [{name: gpu, resourceClaimName: shared}], model: {resources: {claims: [{name: gpu}]}}}}"
    assert findings(_CLAIM + _custom("InferenceService", predictor)) == []
    found = the(
        _CLAIM + _custom("InferenceService", predictor.replace("[{name: gpu}]", "[{name: gp}]")), "invalid-value"
    )
    assert found.field == "spec.predictor.model.resources.claims[0]"


def test_containers_that_get_their_claims_from_elsewhere_are_fine() -> None:
    inner = "{spec: {containers: [{name: c, resources: {claims: [{name: gpu}]}}]}}"
    assert findings(_custom("TrainJob", f"{{podTemplateOverrides: [{inner}]}}")) == []


def test_claims_that_a_custom_resource_names_in_its_own_way_are_used() -> None:
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
    nim = _custom("NIMService", "{draResources: [{resourceClaimName: shared}]}")
    argo = _custom(
        "Workflow", "{templates: [{podSpecPatch: 'resourceClaims: [{name: g, resourceClaimName: shared}]'}]}"
    )
    assert by_rule(_CLAIM + nim + pod, "unused-claim") == by_rule(_CLAIM + argo + pod, "unused-claim") == []
    assert by_rule(_CLAIM.removesuffix("---\n") + pod, "unused-claim")


# --- priorities ---

_GROUP = """\
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g}
spec: {priorityClassName: high, schedulingPolicy: {gang: {minCount: 1}}}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 100
"""


def _member(priority: str) -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  schedulingGroup: {{podGroupName: g}}
  {priority}
  containers: [{{name: c, image: i}}]
"""


def test_a_pod_with_another_priority_than_its_group_is_told() -> None:
    found = the(_member("") + _GROUP, "group-priority")
    assert found.severity is Severity.WARNING
    assert found.message.startswith("the pod has no priority class, its PodGroup g has priority class high")
    assert found.fix is not None
    assert found.fix.text == "priorityClassName: high"


def test_where_both_priorities_are_known_to_differ_it_is_an_error() -> None:
    low = "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: low}\nvalue: 1\n"
    assert the(_member("priorityClassName: low") + _GROUP + low, "group-priority").severity is Severity.ERROR
    same = low.replace("value: 1\n", "value: 100\n")
    assert not by_rule(_member("priorityClassName: low") + _GROUP + same, "group-priority")


def test_the_same_priority_is_fine() -> None:
    assert findings(_member("priorityClassName: high") + _GROUP) == []


def test_a_group_that_needs_more_pods_than_there_are_is_told() -> None:
    group = """
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
"""
    job = """
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec:
  parallelism: PARALLELISM
  completions: 9
  template:
    spec:
      restartPolicy: Never
      schedulingGroup: {podGroupName: g}
      containers: [{name: c, image: 'registry.example.com/i:1'}]
"""
    found = the(job.replace("PARALLELISM", "2") + group, "group-minimum")
    assert found.message.startswith("the group needs 3 pods at once, but only 2 in the input refer to it")
    assert not by_rule(job.replace("PARALLELISM", "3") + group, "group-minimum")
    # Pods that others make may be meant.
    assert not by_rule(group.removeprefix("\n---"), "group-minimum")
