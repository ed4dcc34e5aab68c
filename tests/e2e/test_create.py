"""kubectl create, run and expose: objects from literals."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM, DEPLOYMENT, POD

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]


def test_configuration(kubectl: Kubectl, tmp_path: Path) -> None:
    assert kubectl("create", "configmap", "c", "--from-literal", "a=1") == "configmap/c created\n"
    assert kubectl.json("get", "cm", "c")["data"] == {"a": "1"}
    (tmp_path / "blob").write_bytes(bytes(range(256)))
    kubectl("create", "configmap", "files", f"--from-file={tmp_path / 'blob'}")
    assert base64.b64decode(kubectl.json("get", "cm", "files")["binaryData"]["blob"]) == bytes(range(256))
    assert kubectl("create", "secret", "generic", "s", "--from-literal=k=v") == "secret/s created\n"
    secret = kubectl.json("get", "secret", "s")
    assert (secret["type"], secret["data"]) == ("Opaque", {"k": "dg=="})
    kubectl("create", "secret", "docker-registry", "pull", "--docker-username=u", "--docker-password=p")
    assert kubectl.rows("get", "secret", "pull")[1][1:3] == ["kubernetes.io/dockerconfigjson", "1"]
    refused = kubectl.fails("create", "secret", "generic", "t", "--type=kubernetes.io/tls", "--from-literal=a=b")
    assert "data[tls.crt]: Required value" in refused
    kubectl("create", "serviceaccount", "robot")
    assert kubectl("create", "token", "robot").count(".") == 2
    assert "already exists" in kubectl.fails("create", "configmap", "c")
    shown = kubectl("create", "configmap", "d", "--from-literal=a=1", "--dry-run=server", "-o", "name")
    assert shown == "configmap/d\n"
    assert kubectl("get", "cm", "d", "--ignore-not-found") == ""


def test_workloads(kubectl: Kubectl) -> None:
    assert kubectl("create", "deployment", "d", "--image=nginx", "--replicas=3") == "deployment.apps/d created\n"
    deployment = kubectl.json("get", "deployment", "d")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert deployment["metadata"]["generation"] == 1
    kubectl("create", "job", "j", "--image=busybox", "--", "true")
    assert kubectl.rows("get", "job", "j")[0] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert (
        kubectl.json("get", "job", "j")["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    )
    kubectl("create", "cronjob", "cj", "--image=busybox", "--schedule=*/5 * * * *")
    header, row = kubectl.rows("get", "cronjob")
    assert header[:4] == ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND"]
    assert "*/5 * * * *" in row
    assert kubectl("create", "job", "from-cron", "--from=cronjob/cj") == "job.batch/from-cron created\n"
    refused = kubectl.fails("create", "cronjob", "bad", "--image=busybox", "--schedule=nonsense")
    assert 'spec.schedule: Invalid value: "nonsense"' in refused
    assert kubectl("run", "p", "--image=busybox", "--restart=Never", "--labels=a=b") == "pod/p created\n"
    pod = kubectl.json("get", "pod", "p")
    assert (pod["spec"]["restartPolicy"], pod["status"]["phase"], pod["status"]["qosClass"]) == (
        "Never",
        "Pending",
        "BestEffort",
    )
    kubectl("create", "poddisruptionbudget", "pdb", "--selector=a=b", "--min-available=1")
    header, row = kubectl.rows("get", "pdb")
    assert header[:4] == ["NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS"]
    assert row[1:4] == ["1", "N/A", "0"]
    kubectl("autoscale", "deployment", "d", "--max=5", "--min=2", "--cpu-percent=80")
    assert kubectl.json("get", "hpa", "d")["spec"]["maxReplicas"] == 5


def test_services(kubectl: Kubectl) -> None:
    assert kubectl("create", "service", "clusterip", "c", "--tcp=80:8080") == "service/c created\n"
    header, row = kubectl.rows("get", "service", "c")
    assert header == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert (row[1], row[4], row[2].count(".")) == ("ClusterIP", "80/TCP", 3)
    kubectl("create", "service", "nodeport", "n", "--tcp=80:8080")
    port = kubectl.json("get", "service", "n")["spec"]["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    kubectl("create", "service", "clusterip", "headless", "--clusterip=None")
    assert kubectl.rows("get", "service", "headless")[1][2] == "None"
    kubectl("create", "service", "externalname", "x", "--external-name=example.com")
    assert kubectl.rows("get", "service", "x")[1][1:4] == ["ExternalName", "<none>", "example.com"]
    kubectl("create", "ingress", "i", "--rule=example.com/a=c:80")
    assert kubectl.rows("get", "ingress", "i")[1][:3] == ["i", "<none>", "example.com"]
    kubectl.apply(POD)
    assert kubectl("expose", "pod", "web", "--port=80", "--name=exposed") == "service/exposed exposed\n"
    assert kubectl.json("get", "service", "exposed")["spec"]["selector"] == {"app": "web", "tier": "front"}
    kubectl.apply(DEPLOYMENT)
    assert kubectl("expose", "deployment", "web", "--port=80") == "service/web exposed\n"


def test_roles_and_quotas(kubectl: Kubectl, unique: Unique) -> None:
    kubectl("create", "role", "r", "--verb=get,list", "--resource=pods,deployments.apps")
    assert kubectl.json("get", "role", "r")["rules"][1]["apiGroups"] == ["apps"]
    kubectl("create", "rolebinding", "rb", "--role=r", "--user=ann", "--serviceaccount=default:robot")
    header, row = kubectl.rows("get", "rolebinding", "-o", "wide")
    assert header == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert (row[1], row[3]) == ("Role/r", "ann")
    kubectl("create", "clusterrole", cluster_role := unique("cr"), "--verb=*", "--resource=configmaps")
    assert kubectl.json("get", "clusterrole", cluster_role)["rules"][0]["verbs"] == ["*"]
    kubectl("create", "clusterrolebinding", binding := unique("crb"), f"--clusterrole={cluster_role}", "--group=g")
    assert kubectl.rows("get", "clusterrolebinding", binding)[1][1] == f"ClusterRole/{cluster_role}"
    kubectl("create", "quota", "q", "--hard=pods=1,configmaps=3")
    assert kubectl.json("get", "quota", "q")["spec"]["hard"] == {"pods": "1", "configmaps": "3"}
    kubectl("create", "priorityclass", high := unique("high"), "--value=1000", "--description=x")
    assert kubectl.rows("get", "priorityclass", high)[1][1] == "1000"


def test_objects_from_files(kubectl: Kubectl, tmp_path: Path) -> None:
    manifest = tmp_path / "claim.yaml"
    manifest.write_text(CLAIM)
    assert kubectl("create", "-f", str(manifest)) == "resourceclaim.resource.k8s.io/shared created\n"
    refused = kubectl.fails("create", "-f", str(manifest))
    expected = f'Error from server (AlreadyExists): error when creating "{manifest}": resourceclaims.resource.k8s.io "shared" already exists\n'
    assert refused == expected
    generated = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    created = kubectl("create", "-f", "-", "-o", "name", stdin=json.dumps(generated)).strip()
    assert created.startswith("configmap/gen-")
    assert len(created) == len("configmap/gen-") + 5
    assert kubectl("create", "-f", str(manifest), "--dry-run=client", "-o", "name").startswith("resourceclaim")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kustomization.yaml").write_text("configMapGenerator: [{name: k, literals: [a=b]}]\n")
    assert kubectl("apply", "-k", str(tmp_path / "folder")).startswith("configmap/k-")
