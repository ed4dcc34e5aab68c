"""`allot export`: a cluster of allot's, full of things, applied to a real kube-apiserver (KUBEBUILDER_ASSETS)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.components import Caller, Component
from e2e.kube_cluster import NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import ServerProcess
from waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OBJECTS = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu, namespace: team}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: mine, namespace: team}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
      containers: [{name: main, image: none, resources: {claims: [{name: gpu}]}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: work, namespace: team}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: /data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: team}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: team}
spec: {nodeName: gone, containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: Secret
metadata: {name: password, namespace: team}
stringData: {password: secret}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: v1
kind: Pod
metadata: {name: important, namespace: team}
spec: {priorityClassName: high, containers: [{name: main, image: none}]}
"""
THING = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: one, namespace: team}, spec: {size: 3}}"
KEPT = {
    "CustomResourceDefinition/things.example.com",
    "DeviceClass/gpu.example.com",
    "Deployment/web",
    "Job/work",
    "Namespace/team",
    "PersistentVolume/disk",
    "PersistentVolumeClaim/disk",
    "Pod/important",
    "Pod/lone",
    "PriorityClass/high",
    "ResourceClaim/mine",
    "ResourceClaimTemplate/gpu",
    "Service/web",
    "Thing/one",
}


def run(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "allot", *arguments, "--kubeconfig", str(kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@contextmanager
def full_cluster(folder: Path, kubectl: Path) -> Iterator[Path]:
    """allot's API server and controllers, with what people and controllers made; the administrator's kubeconfig."""
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess("memory", folder))
        arguments = [
            "-m",
            "allot",
            "controllers",
            "--kubeconfig",
            str(server.kubeconfig),
            "--port=-1",
            "--no-leader-elect",
        ]
        controllers = stack.enter_context(Component(Path(sys.executable), arguments, folder))
        caller = caller_of(server.kubeconfig)
        calls = Kubectl(kubectl, server.kubeconfig, folder, "default")
        controllers.wait_for("accounts", lambda: caller.get("/api/v1/namespaces/default/serviceaccounts/default"))
        documents = OBJECTS.split("---\n")
        calls.apply("---\n".join(documents[:2]))
        controllers.wait_for("accounts", lambda: caller.get("/api/v1/namespaces/team/serviceaccounts/default"))
        calls.apply("---\n".join(documents[2:]))
        calls.apply(THING)

        def is_busy() -> bool | None:
            pods = (caller.get("/api/v1/namespaces/team/pods") or {"items": []})["items"]
            claims = (caller.get("/apis/resource.k8s.io/v1/namespaces/team/resourceclaims") or {"items": []})["items"]
            volume = caller.get("/api/v1/namespaces/team/persistentvolumeclaims/disk")
            return (len(pods), len(claims), volume["status"].get("phase")) == (5, 3, "Bound") or None

        controllers.wait_for("pods and claims of controllers", is_busy)
        yield server.kubeconfig


def written(caller: Caller) -> dict[str, Any]:
    """What has arrived, with the parts that must be the same."""
    team, devices = "/api/v1/namespaces/team", "/apis/resource.k8s.io/v1"
    return {
        "web": caller.get("/apis/apps/v1/namespaces/team/deployments/web")["spec"]["template"],
        "claim": caller.get(f"{devices}/namespaces/team/resourceclaims/mine")["spec"],
        "class": caller.get(f"{devices}/deviceclasses/gpu.example.com")["spec"],
        "thing": caller.get("/apis/example.com/v1/namespaces/team/things/one")["spec"],
        "port": caller.get(f"{team}/services/web")["spec"]["ports"][0]["port"],
        "volume": caller.get("/api/v1/persistentvolumes/disk")["spec"]["hostPath"],
        "pod": [each["image"] for each in caller.get(f"{team}/pods/lone")["spec"]["containers"]],
    }


def test_a_cluster_is_applied_to_a_real_one(tmp_path: Path) -> None:
    binaries = find_kubectls()
    if not binaries:
        pytest.skip(MISSING)
    kubectl = next(iter(binaries.values()))
    with ExitStack() as stack:
        # First, so that a skip costs nothing.
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        there = stack.enter_context(kube_apiserver(tmp_path / "there", NO_ACCOUNTS))
        here = stack.enter_context(full_cluster(tmp_path / "here", kubectl))
        exported = run(here, "export")
        assert exported.returncode == 0, exported.stderr
        objects = [each for each in yaml.safe_load_all(exported.stdout) if each]
        found = [f"{each['kind']}/{each['metadata']['name']}" for each in objects]
        assert set(found) >= KEPT
        assert not {name for name in found if name.startswith(("Node/", "ResourceSlice/", "EndpointSlice/", "Secret/"))}
        assert not [name for name in found if name.startswith("Pod/") and name not in KEPT]
        assert "note: left out, made by a controller for another object: " in exported.stderr
        assert "secrets (--secrets): 1 Secret" in exported.stderr
        only = [each for each in yaml.safe_load_all(run(here, "export", "--definitions", "only").stdout) if each]
        assert {each["kind"] for each in only} == {"CustomResourceDefinition"}
        calls = Kubectl(kubectl, there, tmp_path, "default")
        caller = caller_of(there)
        definitions = yaml.safe_dump_all(only)
        calls("apply", "--server-side", "-f", "-", stdin=definitions)
        calls("wait", "--for=condition=Established", "crd", "--all", f"--timeout={WAIT_S:g}s")
        calls("apply", "--server-side", "-f", "-", stdin=run(here, "export", "--definitions", "omit").stdout)
        assert written(caller) == written(caller_of(here))
        # And from there, by a dump of kubectl's.
        dump = calls("get", "deployments,services,pods,pvc,resourceclaims.resource.k8s.io", "-n", "team", "-o", "yaml")
        (tmp_path / "dump.yaml").write_text(dump)
        again = subprocess.run(
            [sys.executable, "-m", "allot", "export", "-f", str(tmp_path / "dump.yaml")],
            capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
        calls("delete", "namespace", "team", "--wait=false")
        assert {each["kind"] for each in yaml.safe_load_all(again.stdout) if each} >= {"Deployment", "Service", "Pod"}
