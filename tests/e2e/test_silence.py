"""Nothing is silent: bad input is refused or shows in a condition, explain names it, and kubectl prints what nobody acts on."""

from __future__ import annotations

import time

import pytest

from cli.command import allot
from e2e.clusters import WAIT, until
from e2e.kubectl import Kubectl
from kind_manifests import NAMESPACED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_PODS = "containers: [{name: c, image: 'app:1'}]"


@pytest.fixture
def kubectl(user: Kubectl) -> Kubectl:
    """kubectl on a cluster with three nodes, a T4 each."""
    return user


@pytest.fixture
def anywhere(user_anywhere: Kubectl) -> Kubectl:
    """The same, and kubectl on one around a real kube-apiserver."""
    return user_anywhere


def explained(kubectl: Kubectl, *what: str) -> str:
    result = allot("explain", *what, "-n", kubectl.namespace, "--kubeconfig", str(kubectl.kubeconfig))
    assert result.code in (0, 1), result.stderr
    return result.stdout


def is_allot(kubectl: Kubectl) -> bool:
    return "allot" in kubectl.json("version")["serverVersion"]["gitVersion"]


def workload(kind: str, name: str, spec: str, labels: str = "") -> str:
    labels = labels or name
    version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return (
        f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n"
        f"spec: {{selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {labels}}}}}, "
        f"spec: {{{_PODS}}}}}{spec}}}\n"
    )


def test_bad_input_is_refused_in_upstreams_words(anywhere: Kubectl) -> None:
    refused = anywhere.fails("apply", "-f", "-", stdin=workload("Deployment", "web", "", labels="other"))
    assert (
        'spec.template.metadata.labels: Invalid value: {"app":"other"}: `selector` does not match template `labels`'
        in refused
    )
    cron = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\n"
        f"spec: {{schedule: '61 * * * *', jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, {_PODS}}}}}}}}}}}\n"
    )
    refused = anywhere.fails("apply", "-f", "-", stdin=cron)
    assert 'spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61' in refused
    hpa = (
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\n"
        "spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, "
        "behavior: {scaleDown: {policies: []}}}\n"
    )
    refused = anywhere.fails("apply", "-f", "-", stdin=hpa)
    assert "spec.behavior.scaleDown.policies: Required value: must specify at least one Policy" in refused


def test_an_autoscaler_without_target_or_metric_says_so_in_its_conditions_and_explain_names_it(
    anywhere: Kubectl,
) -> None:
    hpa = (
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {{name: {name}}}\n"
        "spec: {{maxReplicas: 3, scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {target}}}, "
        "metrics: [{{type: Pods, pods: {{metric: {{name: no_such_metric}}, target: {{type: AverageValue, averageValue: 1}}}}}}]}}\n"
    )
    anywhere.apply(hpa.format(name="lost", target="nothing"))
    anywhere.apply(workload("Deployment", "web", ", replicas: 1"))
    anywhere("wait", "--for=condition=Available", "deploy/web", WAIT)
    anywhere.apply(hpa.format(name="blind", target="web"))

    def told(name: str, type_: str) -> tuple[str, str]:
        conditions = anywhere.json("get", "hpa", name).get("status", {}).get("conditions", [])
        found = [each for each in conditions if each["type"] == type_ and each["status"] == "False"]
        return (found[0]["reason"], found[0]["message"]) if found else ("", "")

    until(lambda: told("lost", "AbleToScale")[0] == "FailedGetScale")
    until(lambda: told("blind", "ScalingActive")[0] == "FailedGetPodsMetric")
    if not is_allot(anywhere):
        # Nobody serves metrics there.
        nobody = "custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
        assert told("blind", "ScalingActive")[1].endswith(f"unable to fetch metrics from {nobody}")
    assert "Deployment " in explained(anywhere, "hpa/lost") and "nothing does not exist" in explained(
        anywhere, "hpa/lost"
    )
    assert "(FailedGetPodsMetric)" in explained(anywhere, "hpa", "blind")
    everything = explained(anywhere)
    assert everything.count("HorizontalPodAutoscaler ") == 2


def test_a_volume_claim_of_an_unknown_class_is_warned_of_reported_and_explained(anywhere: Kubectl) -> None:
    claim = (
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: standart, "
        "accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
    )
    warned = anywhere.warns("apply", "-f", "-", stdin=claim)
    # kube-apiserver says nothing.
    assert ('Warning: storage class "standart" does not exist' in warned) == is_allot(anywhere)
    until(lambda: 'storageclass.storage.k8s.io "standart" not found' in anywhere("get", "events"))
    told = explained(anywhere, "pvc/data")
    assert "is not bound: StorageClass standart does not exist (did you mean standard?)" in told


def test_what_nobody_acts_on_is_printed_by_kubectl_and_what_is_acted_on_is_not(kubectl: Kubectl) -> None:
    ingress = NAMESPACED["networking.k8s.io/v1 Ingress"]
    head = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n"
    assert "Warning: allot has no ingress controller" in kubectl.warns("apply", "-f", "-", stdin=head + ingress)
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {scheduling: {schedulingPolicy: {basic: {}}}, "
        f"template: {{spec: {{restartPolicy: Never, {_PODS}}}}}}}\n"
    )
    dropped = "Warning: spec.scheduling: dropped: it needs feature gate WorkloadWithJob, which is disabled"
    assert dropped in kubectl.warns("apply", "-f", "-", stdin=job)
    for quiet in (workload("Deployment", "web", ""), workload("DaemonSet", "agent", "")):
        assert "Warning" not in kubectl.warns("apply", "-f", "-", stdin=quiet)


def test_a_rollout_on_full_devices_is_explained_with_what_helps(kubectl: Kubectl) -> None:
    claim = "devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}"
    template = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: one}\nspec: {spec: {SPEC}}\n"
    )
    kubectl.apply(template.replace("SPEC", claim))
    pods = (
        "containers: [{name: c, image: 'IMAGE', resources: {claims: [{name: gpu}]}}], terminationGracePeriodSeconds: 0, "
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]"
    )
    deployment = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: infer}\nspec: {replicas: 3, progressDeadlineSeconds: 2, "
        f"selector: {{matchLabels: {{app: infer}}}}, template: {{metadata: {{labels: {{app: infer}}}}, spec: {{{pods}}}}}}}\n"
    )
    kubectl.apply(deployment.replace("IMAGE", "app:1"))
    kubectl("wait", "--for=condition=Available", "deploy/infer", WAIT)
    kubectl("set", "image", "deploy/infer", "c=app:2")
    stuck = "cannot continue its rollout"
    until(lambda: stuck in (told := explained(kubectl, "deploy/infer")) and "ProgressDeadlineExceeded" in told)
    told = explained(kubectl, "deployment", "infer")
    assert "maxUnavailable is 0 (25% of 3 replicas, rounded down)" in told
    assert "1. set maxSurge: 0 and maxUnavailable: 1 in Deployment" in told
    everything = explained(kubectl)
    assert everything.count("infer") >= 1 and len([line for line in everything.splitlines() if "infer" in line]) == 1
    change = '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'
    kubectl("patch", "deploy", "infer", "-p", change)
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/infer", WAIT)
    assert "has 3 of 3 pods ready" in explained(kubectl, "deploy/infer")


def test_a_namespace_with_one_of_everything_is_gone_within_seconds(anywhere: Kubectl) -> None:
    name = f"{anywhere.namespace}-full"[:60]
    anywhere("create", "namespace", name)
    until(lambda: "default" in anywhere("get", "serviceaccounts", "-n", name))
    documents = []
    for kind, content in NAMESPACED.items():
        version, _, word = kind.partition(" ")
        # The Service has Endpoints of its own name.
        own = "alone" if word == "Endpoints" else "x"
        head = f"apiVersion: {version}\nkind: {word}\nmetadata: {{name: {own}, namespace: {name}}}\n"
        documents.append(head + content.replace("NAMESPACE", name))
    if is_allot(anywhere):
        # kube-apiserver does not serve it by default.
        documents.append(
            f"apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {{name: x, namespace: {name}}}\n"
            "spec: {schedulingPolicy: {gang: {minCount: 2}}}\n"
        )
    anywhere("create", "-n", name, "-f", "-", stdin="\n---\n".join(documents))
    started = time.monotonic()
    anywhere("delete", "namespace", name, "--timeout=110s")
    # Pods have their grace period; the rest is at once. The bound is for busy machines.
    assert time.monotonic() - started < 110
    assert name not in anywhere("get", "namespaces")
