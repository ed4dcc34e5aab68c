"""One object of every built-in kind goes through kubectl: apply, diff, get, describe, server-side apply, delete."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from e2e.kubectl import Kubectl
from kind_manifests import CLUSTER, NAMESPACED

pytestmark = pytest.mark.slow


def _manifests(kubectl: Kubectl) -> str:
    documents: list[str] = []
    for kind, content in [*NAMESPACED.items(), *CLUSTER.items()]:
        version, _, name = kind.partition(" ")
        object_name = f"{kubectl.namespace}-{name.lower()}"
        filled = content.replace("NAMESPACE", kubectl.namespace)
        documents.append(f"apiVersion: {version}\nkind: {name}\nmetadata: {{name: {object_name}}}\n{filled}\n")
    return "---\n".join(documents)


def _items(kubectl: Kubectl, manifests: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(kubectl("get", "-f", "-", "-o", "yaml", stdin=manifests))["items"]
    return found


def test_every_kind(kubectl: Kubectl) -> None:
    manifests = _manifests(kubectl)
    kinds = manifests.count("\nkind: ")
    assert len(re.findall(r" created$", kubectl.apply(manifests), re.MULTILINE)) == kinds
    assert kubectl("diff", "-f", "-", stdin=manifests) == ""
    listed = _items(kubectl, manifests)
    assert all(item["metadata"]["uid"] and item["metadata"]["creationTimestamp"] for item in listed)
    assert len({item["metadata"]["uid"] for item in listed}) == kinds
    # kubectl says "configured" of lists that got defaults, as it does with any server; nothing is written.
    assert len(re.findall(r" (unchanged|configured)$", kubectl.apply(manifests), re.MULTILINE)) == kinds
    assert _items(kubectl, manifests) == listed
    shown = kubectl("get", "-f", "-", "-o", "wide", stdin=manifests)
    assert shown.count(f"{kubectl.namespace}-") >= kinds
    # Of this kind kubectl 1.33 describes only a version that servers do not offer any more.
    documents = [document for document in manifests.split("---\n") if "VolumeAttributesClass" not in document]
    described = kubectl("describe", "-f", "-", stdin="---\n".join(documents))
    assert described.count(f"{kubectl.namespace}-") >= len(documents)
    assert kubectl("label", "-f", "-", "walked=yes", stdin=manifests).count(" labeled") == kinds
    # Lists that belong to one manager as a whole got defaults, which is a conflict with any server.
    served = kubectl.apply(manifests, "--server-side", "--force-conflicts")
    assert served.count(" serverside-applied") == kinds
    patched = kubectl("annotate", "-f", "-", "a=b", stdin=manifests)
    assert patched.count(" annotated") == kinds
    rehearsed = kubectl("delete", "-f", "-", "--dry-run=server", stdin=manifests)
    assert rehearsed.count("(server dry run)") == kinds
    gone = kubectl("delete", "-f", "-", "--wait=false", stdin=manifests)
    assert gone.count(" deleted") == kinds


def test_policies_guard_what_they_match(kubectl: Kubectl) -> None:
    name = kubectl.namespace
    policy = f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]}}
  validations: [{{expression: "object.metadata.name != 'forbidden'", message: that name is taken}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}
"""
    kubectl.apply(policy)
    kubectl("create", "cm", "allowed")
    refused = kubectl.fails("create", "cm", "forbidden")
    assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: that name is taken" in refused
    kubectl("delete", "validatingadmissionpolicybinding", name)
    kubectl("delete", "validatingadmissionpolicy", name)
    kubectl("create", "cm", "forbidden")


def test_quotas_and_limits(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "q", "--hard=count/configmaps=2,pods=1")
    kubectl("patch", "quota", "q", "--subresource=status", "--type=merge", "-p", '{"status":{"hard":{"pods":"1"}}}')
    kubectl("run", "one", "--image=busybox")
    refused = kubectl.fails("run", "two", "--image=busybox")
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refused
    limits = (
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l}\nspec: {limits: [{type: Container, max: {cpu: 1}}]}\n"
    )
    kubectl.apply(limits)
    kubectl("delete", "quota", "q")
    kubectl("run", "three", "--image=busybox")
    assert kubectl.json("get", "pod", "three")["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    too_much = '{"spec":{"containers":[{"name":"four","image":"x","resources":{"limits":{"cpu":"2"}}}]}}'
    refused = kubectl.fails("run", "four", "--image=x", f"--overrides={too_much}")
    assert "maximum cpu usage per Container is 1, but limit is 2" in refused


def test_priorities_and_service_accounts_of_pods(kubectl: Kubectl) -> None:
    kubectl("create", "priorityclass", name := kubectl.namespace, "--value=1234")
    pod = f'{{"spec":{{"priorityClassName":"{name}"}}}}'
    kubectl("run", "p", "--image=busybox", f"--overrides={pod}")
    spec = kubectl.json("get", "pod", "p")["spec"]
    assert (spec["priority"], spec["serviceAccountName"]) == (1234, "default")
    refused = kubectl.fails("run", "q", "--image=busybox", '--overrides={"spec":{"priorityClassName":"none"}}')
    assert "no PriorityClass with name none was found" in refused
    refused = kubectl.fails("run", "q", "--image=busybox", '--overrides={"spec":{"serviceAccountName":"none"}}')
    assert "error looking up service account" in refused
    added = kubectl("debug", "p", "--image=busybox", "--container=extra", "--attach=false", "--quiet")
    assert "error" not in added
    assert kubectl("get", "pod", "p", "-o", "jsonpath={.spec.ephemeralContainers[*].name}") == "extra"
