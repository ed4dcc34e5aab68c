"""The chart: what it renders is valid, least, and the same with Helm and without.

ALLOT_HELM names a helm binary; without one, and none on the PATH, what needs it is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

import allot
from allot.core.model.codec import encode
from allot.dashboard.rights import cluster_role
from allot.devices import amd, cpu, gpu, nic, tpu
from allot.devices.amd.classes import device_classes as amd_classes
from allot.devices.cpu.classes import device_classes as cpu_classes
from allot.devices.gpu.classes import device_classes as gpu_classes
from allot.devices.nic.classes import device_classes as nic_classes
from allot.devices.tpu.classes import device_classes as tpu_classes
from allot.guard.configuration import Service, WebhookOptions, webhook_configuration
from allot.installation.applying import COMPONENTS, DRIVERS, KINDS, PARTS, made_by_programs
from allot.installation.chart_rendering import BadValues, Release, default_values, in_part, render, set_value
from allot.installation.go_templates import _FUNCTIONS
from allot.scheduler.configuration import parse_configuration

CHART = Path(allot.__file__).parent / "installation" / "chart"
RELEASE = Release("allot", "allot-system")
EVERYTHING: dict[str, Any] = {
    **{part: {"enabled": True} for part in PARTS if part != "drivers"},
    "autoscaler": {"enabled": True, "address": "provider:8086"},
    "scheduler": {"enabled": True, "protectClaims": True},
    "drivers": {name: {"enabled": True} for name in DRIVERS},
    "metrics": {"serviceMonitor": {"enabled": True}},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "everything": EVERYTHING,
    "simulated": {"drivers": {name: {"enabled": True, "profile": "h100x8"} for name in DRIVERS}},
    "counted": {"drivers": {"gpu": {"enabled": True, "extendedResourceName": "nvidia.com/gpu", "featureGates": {"DynamicMIG": True, "MPSSupport": False}}}},
    "guarded": {
        "guard": {"enabled": True, "failurePolicy": "Ignore", "timeoutSeconds": 3, "replicas": 1},
        "scheduler": {"enabled": True, "isolation": "guard", "profile": {"plugins": {"score": {"disabled": [{"name": "*"}]}}}},
    },
    "plain": {
        **EVERYTHING,
        "metrics": {"service": False, "serviceMonitor": {"enabled": False}},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "policy": {"restrictSlices": False},
    },
    "placed": {
        "image": {"repository": "r.example:5000/allot", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "kubelet": {"root": "/var/lib/k0s/kubelet"},
        "apiServer": {"host": "192.0.2.1"},
        "guard": {"enabled": True},
        "metrics": {
            "serviceMonitor": {"enabled": True, "interval": "1m", "labels": {"release": "prometheus"}, "relabelings": [{"action": "labeldrop", "regex": "pod"}]}
        },
        "drivers": {"cpu": {"enabled": True}},
        "fullnameOverride": "mine",
        "networkPolicy": {"metricsFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
        "scheduler": {
            "enabled": True,
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}}},
            "podAnnotations": {"x": "true"},
            "args": ["--log-level=debug"],
            "priorityClassName": "",
        },
        "autoscaler": {"enabled": True, "address": "p:1", "tlsSecret": "tls"},
        "dashboard": {"enabled": True, "url": "https://gpus.example.com/", "hosts": ["a", "b"], "tlsSecret": "tls"},
    },
}  # fmt: skip


def rendered(values: dict[str, Any], release: Release = RELEASE) -> list[dict[str, Any]]:
    return list(render(values, release).objects)


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def helm() -> str:
    found = os.environ.get("ALLOT_HELM") or shutil.which("helm")
    if not found:
        pytest.skip("no helm: ALLOT_HELM names one")
    return found


# --- with Helm ---


@pytest.mark.parametrize("name", VARIANTS)
def test_helm_renders_the_same(name: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(VARIANTS[name]))
    command = [
        helm(),
        "template",
        "allot",
        str(CHART),
        "-n",
        "allot-system",
        "-f",
        str(values),
        "--kube-version=1.37.0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr

    def key(object_: dict[str, Any]) -> tuple[str, str]:
        return object_["kind"], object_["metadata"]["name"]

    theirs = sorted((each for each in yaml.safe_load_all(done.stdout) if each), key=key)
    ours = sorted(rendered(VARIANTS[name]), key=key)
    assert [key(each) for each in ours] == [key(each) for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert _by(one, "x") == _by(other, "x"), key(one)


def _by(object_: Any, service: str) -> Any:
    """The object with who renders it left out, and the text of files read."""
    text = yaml.safe_dump(object_).replace("managed-by: Helm", f"managed-by: {service}")
    found = yaml.safe_load(text.replace("managed-by: allot", f"managed-by: {service}"))
    if found["kind"] == "ConfigMap":
        found["data"] = {name: yaml.safe_load(content) for name, content in found["data"].items()}
    annotations = found.get("spec", {}).get("template", {}).get("metadata", {}).get("annotations", {})
    if "checksum/config" in annotations:
        # Of a text whose quotes and order are the renderer's.
        annotations["checksum/config"] = "x"
    return found


def test_helm_lints_it(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    linted = subprocess.run([helm(), "lint", "--strict", str(CHART), "-n", "allot-system"], capture_output=True, text=True, env=environment, check=False)  # fmt: skip
    assert linted.returncode == 0, linted.stdout


def test_helm_refuses_what_the_schema_refuses(tmp_path: Path) -> None:
    command = [helm(), "template", "allot", str(CHART), "-n", "allot-system", "--set", "scheduler.enabld=true"]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(tmp_path)}, check=False)
    assert done.returncode != 0 and "enabld" in done.stderr


# --- without ---


@pytest.mark.slow
def test_objects_fit_kubernetes_schemas() -> None:
    """One of each kind, and all that run pods: reading a schema takes a tenth of a second."""
    different: dict[tuple[str, ...], dict[str, Any]] = {}
    for name in ("everything", "guarded", "placed"):
        for object_ in filter(in_part, rendered(VARIANTS[name])):
            is_workload = object_["kind"] in ("DaemonSet", "Deployment")
            different[object_["kind"], *((name, object_["metadata"]["name"]) if is_workload else ())] = object_
    # Prometheus Operator's is not Kubernetes' own.
    del different[("ServiceMonitor",)]
    for object_ in different.values():
        kubernetes_validate.validate(object_, "1.37", strict=True)


def test_the_chart_is_of_the_packages_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (allot.__version__, allot.__version__)


def test_every_kind_is_known_to_those_who_remove() -> None:
    made = {(each["apiVersion"], each["kind"]) for each in rendered(EVERYTHING) if in_part(each)}
    assert made == set(KINDS)


def test_every_object_belongs_to_a_part_and_a_component() -> None:
    for object_ in rendered(EVERYTHING):
        labels = object_["metadata"].get("labels", {})
        if object_["kind"] in ("CustomResourceDefinition", "PriorityClass") or object_["metadata"]["name"].startswith(
            "allot:"
        ):
            assert not in_part(object_)
            continue
        assert labels["app.kubernetes.io/component"] in COMPONENTS[labels["allot.dev/part"]]
        assert labels["app.kubernetes.io/managed-by"] == "allot"


def test_definitions_stay_when_a_release_goes() -> None:
    definitions = of_kind(rendered({"queues": {"enabled": True}}), "CustomResourceDefinition")
    assert definitions
    for each in definitions:
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_two_releases_do_not_clash() -> None:
    values = {**EVERYTHING, "drivers": {}, "queues": {}}
    first = {
        (each["kind"], each["metadata"]["name"]) for each in rendered(values) if "namespace" not in each["metadata"]
    }
    second = rendered(values, Release("allot", "other"))
    assert (
        not {(each["kind"], each["metadata"]["name"]) for each in second if "namespace" not in each["metadata"]} & first
    )


def test_the_policy_of_slices_is_about_the_account_that_the_driver_runs_as() -> None:
    for name in DRIVERS:
        objects = rendered({"drivers": {name: {"enabled": True}}})
        (workload,) = of_kind(objects, "DaemonSet")
        (policy,) = of_kind(objects, "ValidatingAdmissionPolicy")
        (binding,) = of_kind(objects, "ValidatingAdmissionPolicyBinding")
        account = workload["spec"]["template"]["spec"]["serviceAccountName"]
        user = f'"system:serviceaccount:allot-system:{account}"'
        assert policy["spec"]["matchConditions"][0]["expression"] == f"request.userInfo.username == {user}"
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert [each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")] == [account]


@pytest.mark.parametrize(
    ("name", "module", "classes"),
    [
        ("gpu", gpu, gpu_classes()),
        ("amd", amd, amd_classes()),
        ("nic", nic, nic_classes()),
        ("cpu", cpu, cpu_classes()),
        ("tpu", tpu, tpu_classes()),
    ],
)
def test_device_classes_are_those_of_the_drivers(name: str, module: Any, classes: Any) -> None:
    extended = {"gpu": "nvidia.com/gpu", "amd": "amd.com/gpu"}.get(name)
    values = {"enabled": True, **({"extendedResourceName": extended} if extended else {})}
    objects = rendered({"drivers": {name: values}})
    found = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "DeviceClass")}
    assert found == {each.metadata.name: encode(each)["spec"] for each in classes}
    (workload,) = of_kind(objects, "DaemonSet")
    assert workload["spec"]["template"]["spec"]["containers"][0]["command"] == ["python3", "-m", module.__name__]
    (rights,) = of_kind(objects, "ClusterRole")
    named = [rule["resourceNames"] for rule in rights["rules"] if rule["resources"] == ["resourceclaims/driver"]]
    assert named == [[DRIVERS[name]]]


def test_the_guards_webhook_is_what_the_guard_itself_would_install() -> None:
    (found,) = of_kind(rendered({"guard": {"enabled": True}}), "ValidatingWebhookConfiguration")
    own = webhook_configuration(WebhookOptions(service=Service("allot-system", "allot-guard")))
    assert found["webhooks"] == own["webhooks"]


def test_the_dashboard_may_look_at_what_its_pages_show_and_nothing_else() -> None:
    (role,) = of_kind(rendered({"dashboard": {"enabled": True}}), "ClusterRole")
    assert role["rules"] == cluster_role()["rules"]


def test_the_dashboard_is_told_where_browsers_find_it() -> None:
    def arguments(**values: Any) -> list[str]:
        (found,) = of_kind(rendered({"dashboard": {"enabled": True, **values}}), "Deployment")
        given: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
        return given

    proxied = "http://127.0.0.1:8001/api/v1/namespaces/allot-system/services/https:allot-dashboard:8443/proxy/"
    assert f"--external-url={proxied}" in arguments()
    behind = arguments(url="https://gpus.example.com/", hosts=["10.0.0.1"], tlsSecret="tls")
    assert "--external-url=https://gpus.example.com/" in behind and "--allow-host=10.0.0.1" in behind
    assert "--tls-cert-file=/etc/allot-tls/tls.crt" in behind


def test_prometheus_operator_finds_the_metrics_of_every_part_that_serves_them() -> None:
    objects = rendered(EVERYTHING)
    services = {each["metadata"]["name"]: each for each in of_kind(objects, "Service")}
    monitors = of_kind(objects, "ServiceMonitor")
    assert {each["metadata"]["name"] for each in monitors} == {name for name in services if name.endswith("-metrics")}
    for each in monitors:
        spec, service = each["spec"], services[each["metadata"]["name"]]
        assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert spec["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "30s"}]
        assert [port["name"] for port in service["spec"]["ports"]] == ["metrics"]
    assert of_kind(rendered({"guard": {"enabled": True}}), "ServiceMonitor") == []


def test_a_scheduler_with_nodes_of_its_own_keeps_to_them_and_adds_to_what_its_profile_says() -> None:
    own = {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}}

    def profile(isolation: str) -> Any:
        values = {"enabled": True, "isolation": isolation, "profile": {"pluginConfig": [own]}}
        (found,) = of_kind(rendered({"scheduler": values}), "ConfigMap")
        made = parse_configuration(yaml.safe_load(found["data"]["scheduler.yaml"]), "scheduler.yaml")
        return made.profiles[0].settings

    settings = profile("nodes")
    assert settings.hard_pod_affinity_weight == 5
    assert settings.added_affinity.allows("n", {"allot.dev/scheduler": "allot"})
    assert not settings.added_affinity.allows("n", {"allot.dev/scheduler": "other"})
    assert profile("none").added_affinity is None


def test_programs_take_the_options_that_the_chart_gives_them() -> None:
    from allot.cli.main import cli

    for object_ in of_kind(rendered(EVERYTHING), "Deployment"):
        command, *arguments = object_["spec"]["template"]["spec"]["containers"][0]["args"]
        known = {option for parameter in cli.get_command(None, command).params for option in parameter.opts}  # type: ignore[arg-type,union-attr]
        assert {each.partition("=")[0] for each in arguments} <= known, command


def test_what_running_programs_make_has_the_names_that_the_chart_gives() -> None:
    objects = rendered(EVERYTHING)
    leases = {name for _, kind, name in made_by_programs(RELEASE, PARTS) if kind == "Lease"}
    granted = {
        name
        for role in filter(in_part, of_kind(objects, "Role"))
        for rule in role["rules"]
        if rule["resources"] == ["leases"]
        for name in rule.get("resourceNames", ())
    }
    assert leases == granted


def test_nothing_runs_as_root_but_drivers() -> None:
    for object_ in of_kind(rendered(EVERYTHING), "Deployment"):
        spec = object_["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        security = spec["containers"][0]["securityContext"]
        assert security["capabilities"] == {"drop": ["ALL"]} and security["readOnlyRootFilesystem"] is True


def test_no_right_is_for_everything() -> None:
    for role in (*of_kind(rendered(EVERYTHING), "ClusterRole"), *of_kind(rendered(EVERYTHING), "Role")):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] and "*" not in rule["apiGroups"], role["metadata"]["name"]
            if "*" in rule["resources"]:
                assert rule["verbs"] == ["get", "list", "watch"]
            assert "secrets" not in rule["resources"], role["metadata"]["name"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"scheduler": {"replicas": 0}}, "scheduler.replicas: 0 is less than the minimum of 1"),
        ({"shceduler": {}}, "'shceduler' was unexpected"),
        ({"scheduler": {"isolation": "hope"}}, "scheduler.isolation: 'hope' is not one of"),
        ({"scheduler": {"enabled": True, "isolation": "guard"}}, "needs a guard: set guard.enabled"),
        ({"scheduler": {"enabled": True, "name": "default-scheduler"}}, "default-scheduler is kube-scheduler's own"),
        ({"autoscaler": {"enabled": True}}, "autoscaler.address: expected where the provider answers"),
        ({"dashboard": {"url": "gpus.example.com"}}, "dashboard.url: 'gpus.example.com' does not match"),
        ({"kubelet": {"root": "relative"}}, "kubelet.root: 'relative' does not match"),
        ({"drivers": {"gpu": {"port": -1}}}, "drivers.gpu.port: -1 is less than the minimum"),
        (
            {"metrics": {"service": False, "serviceMonitor": {"enabled": True}}},
            "metrics.serviceMonitor: needs metrics.service",
        ),
        (
            {"metrics": {"serviceMonitor": {"interval": "soon"}}},
            "metrics.serviceMonitor.interval: 'soon' does not match",
        ),
        (
            {"scheduler": {"enabled": True, "profile": {"pluginConfig": [{"name": "NodeAffinity", "args": {}}]}}},
            "scheduler.profile.pluginConfig: NodeAffinity has arguments with scheduler.isolation nodes already",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(BadValues, match=re.escape(told)):
        render(values, RELEASE)


def test_the_namespace_default_is_refused() -> None:
    with pytest.raises(BadValues, match="does not run in the namespace default"):
        render({}, Release("allot", "default"))


def test_every_default_value_fits_the_schema_and_nothing_is_on() -> None:
    assert rendered({}) == []
    assert not re.search(r"(?m)^ +enabled: true", (CHART / "values.yaml").read_text().split("drivers:")[1])


def test_a_value_is_set_by_its_path() -> None:
    values = set_value(default_values(), "scheduler.replicas=3")
    assert values["scheduler"]["replicas"] == 3 and values["scheduler"]["name"] == "allot"
    assert set_value({}, "a.b={c: d}") == {"a": {"b": {"c": "d"}}}
    with pytest.raises(BadValues, match="expected KEY=VALUE"):
        set_value({}, "a.b")


def test_no_function_is_there_that_no_template_uses() -> None:
    texts = " ".join(path.read_text() for path in (CHART / "templates").iterdir())
    words = set(re.findall(r"[A-Za-z0-9]+", " ".join(re.findall(r"\{\{.*?\}\}", texts, re.DOTALL))))
    assert set(_FUNCTIONS) - words == set()
