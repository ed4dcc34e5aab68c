"""kubectl apply on both sides, diff, edit and replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.kubectl import Kubectl
from e2e.manifests import CONFIG_MAPS, DEPLOYMENT, DEVICE_CLASS, POD, named

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]


def _map(data: str, name: str = "m") -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {data}\n"


def test_apply_creates_changes_and_removes(kubectl: Kubectl) -> None:
    assert kubectl.apply(_map("{a: '1', b: '2'}")) == "configmap/m created\n"
    assert kubectl.apply(_map("{a: '1', b: '2'}")) == "configmap/m unchanged\n"
    assert kubectl.apply(_map("{a: '3'}")) == "configmap/m configured\n"
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "3"}
    kubectl("patch", "cm", "m", "--type=merge", "-p", '{"data":{"other":"x"}}')
    kubectl.apply(_map("{a: '4'}"))
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "4", "other": "x"}
    assert '"a":"4"' in kubectl("apply", "view-last-applied", "cm", "m", "-o", "json").replace(" ", "")
    kubectl("apply", "set-last-applied", "-f", "-", stdin=_map("{a: '4', other: x}"))
    kubectl.apply(_map("{a: '4'}"))
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "4"}
    assert kubectl.apply(_map("{a: '5'}"), "--dry-run=server") == "configmap/m configured (server dry run)\n"
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "4"}


def test_apply_merges_lists_of_a_deployment(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    sidecar = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox:1"}]}}}}'
    assert kubectl("patch", "deployment", "web", "-p", sidecar) == "deployment.apps/web patched\n"
    kubectl.apply(DEPLOYMENT.replace("nginx:1", "nginx:2"))
    containers = kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"]
    assert {container["name"]: container["image"] for container in containers} == {
        "main": "nginx:2",
        "side": "busybox:1",
    }
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.generation}") == "3"
    kubectl.apply(DEPLOYMENT.replace("replicas: 2", "replicas: 5"))
    assert kubectl.rows("get", "deployment", "web")[1][1] == "0/5"


def test_server_side_apply_conflicts_and_force(kubectl: Kubectl) -> None:
    side = ("--server-side", "--field-manager")
    assert kubectl.apply(_map("{a: '1'}"), *side, "one") == "configmap/m serverside-applied\n"
    refused = kubectl.fails("apply", *side, "two", "-f", "-", stdin=_map("{a: '2'}"))
    assert 'conflict with "one": .data.a' in refused
    assert "Apply failed with 1 conflict" in refused
    kubectl.apply(_map("{a: '2'}"), *side, "two", "--force-conflicts")
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "2"}
    kubectl.apply(_map("{b: '1'}"), *side, "one")
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "2", "b": "1"}
    kubectl.apply(_map("{}"), *side, "one")
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "2"}
    managers = kubectl("get", "cm", "m", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
    assert "two" in managers.split()
    operations = "jsonpath={.metadata.managedFields[*].operation}"
    assert set(kubectl("get", "cm", "m", "--show-managed-fields", "-o", operations).split()) == {"Apply"}


def test_server_side_apply_takes_over_client_side(kubectl: Kubectl) -> None:
    kubectl.apply(DEPLOYMENT)
    assert kubectl.apply(DEPLOYMENT, "--server-side") == "deployment.apps/web serverside-applied\n"
    without_port = DEPLOYMENT.replace(", ports: [{containerPort: 80}]", "")
    kubectl.apply(without_port, "--server-side")
    assert "ports" not in kubectl.json("get", "deployment", "web")["spec"]["template"]["spec"]["containers"][0]
    kubectl.apply(POD, "--server-side", "--dry-run=server")
    assert kubectl("get", "pod", "web", "--ignore-not-found") == ""


def test_apply_with_sets(kubectl: Kubectl) -> None:
    environment = {"KUBECTL_APPLYSET": "true"}
    arguments = ("apply", "-f", "-", "--prune", "--applyset=set", "-n", kubectl.namespace)
    kubectl(*arguments, stdin=CONFIG_MAPS, **environment)
    pruned = kubectl(*arguments, stdin=_map("{}", "a"), **environment)
    assert "configmap/b pruned" in pruned
    assert "configmap/c pruned" in pruned
    old = kubectl(
        "apply", "-f", "-", "--prune", "-l", "set=one", "--prune-allowlist=core/v1/ConfigMap", stdin=CONFIG_MAPS
    )
    assert "configmap/a" in old


def test_diff(kubectl: Kubectl) -> None:
    kubectl.apply(_map("{a: '1'}"))
    assert kubectl("diff", "-f", "-", stdin=_map("{a: '1'}")) == ""
    changed = kubectl.run("diff", "-f", "-", stdin=_map("{a: '2'}"))
    assert changed.returncode == 1, changed.stderr
    assert '+  a: "2"' in changed.stdout
    added = kubectl.run("diff", "-f", "-", stdin=_map("{a: '2'}", "new"))
    assert (added.returncode, "+kind: ConfigMap" in added.stdout) == (1, True), added.stderr
    served = kubectl.run("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=_map("{a: '2'}"))
    assert (served.returncode, '+  a: "2"' in served.stdout) == (1, True), served.stderr
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "1"}


def test_edit(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl.apply(_map("{a: '1'}"))
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/a: .1./a: \'two\'/" "$1"\n')
    editor.chmod(0o755)
    assert kubectl("edit", "cm", "m", EDITOR=str(editor)) == "configmap/m edited\n"
    assert kubectl.json("get", "cm", "m")["data"] == {"a": "two"}
    editor.write_text("#!/bin/sh\ntrue\n")
    assert (
        "Edit cancelled, no changes made" in kubectl.run("edit", "cm", "m", environment={"EDITOR": str(editor)}).stderr
    )
    editor.write_text("#!/bin/sh\nsed -i 's/containerPort: 80/containerPort: 81/' \"$1\"\n")
    kubectl.apply(DEPLOYMENT)
    assert kubectl("edit", "deployment", "web", EDITOR=str(editor)) == "deployment.apps/web edited\n"


def test_replace(kubectl: Kubectl, unique: Unique) -> None:
    kubectl.apply(_map("{a: '1'}"))
    assert kubectl("replace", "-f", "-", stdin=_map("{z: '9'}")) == "configmap/m replaced\n"
    current = kubectl.json("get", "cm", "m")
    assert current["data"] == {"z": "9"}
    assert 'configmaps "none" not found' in kubectl.fails("replace", "-f", "-", stdin=_map("{}", "none"))
    stale = _map("{}").replace("name: m", "name: m, resourceVersion: '1'")
    refused = kubectl.fails("replace", "-f", "-", stdin=stale)
    assert "the object has been modified; please apply your changes to the latest version and try again" in refused
    replaced = kubectl("replace", "--force", "-f", "-", stdin=_map("{y: '9'}"))
    assert "configmap/m replaced" in replaced
    assert kubectl.json("get", "cm", "m")["metadata"]["uid"] != current["metadata"]["uid"]
    kubectl.apply(named(DEVICE_CLASS, name := unique("class")))
    changed = named(DEVICE_CLASS, name).replace("fake.example.com", "other.example.com")
    kubectl("replace", "-f", "-", stdin=changed)
    assert kubectl("get", "deviceclass", name, "-o", "jsonpath={.metadata.generation}") == "2"
