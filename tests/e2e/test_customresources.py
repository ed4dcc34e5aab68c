"""CustomResourceDefinitions and their objects with kubectl."""

from __future__ import annotations

import pytest

from e2e.kubectl import Kubectl

pytestmark = pytest.mark.slow

_DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: wheels.NAME.example.com}
spec:
  group: NAME.example.com
  scope: Namespaced
  names: {plural: wheels, singular: wheel, kind: Wheel, shortNames: [wh], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Note, type: string, jsonPath: .spec.note, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations: [{rule: "self.size < 100", message: "too large a wheel"}]
            properties:
              size: {type: integer, minimum: 1, description: How large the wheel is.}
              note: {type: string, default: round}
              replicas: {type: integer}
          status:
            type: object
            properties: {replicas: {type: integer}}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""

_WHEEL = """
apiVersion: NAME.example.com/v1
kind: Wheel
metadata: {name: w}
spec: {size: 3, replicas: 1}
"""


def test_custom_resources_live_as_built_in_ones_do(kubectl: Kubectl) -> None:
    group = f"{kubectl.namespace}.example.com"
    definition, wheel = (text.replace("NAME", kubectl.namespace) for text in (_DEFINITION, _WHEEL))
    assert kubectl.apply(definition) == f"customresourcedefinition.apiextensions.k8s.io/wheels.{group} created\n"
    assert "condition met" in kubectl("wait", f"crd/wheels.{group}", "--for=condition=Established", "--timeout=30s")
    assert kubectl.apply(wheel) == f"wheel.{group}/w created\n"
    header, row = kubectl.rows("get", f"wheels.{group}")
    assert (header, row) == (["NAME", "SIZE"], ["w", "3"])
    header, row = kubectl.rows("get", f"wheels.{group}", "-o", "wide")
    assert (header, row) == (["NAME", "SIZE", "NOTE"], ["w", "3", "round"])
    missing = kubectl.fails("apply", "-f", "-", stdin=wheel.replace("size: 3, ", ""))
    assert 'The Wheel "w" is invalid: spec.size: Required value' in missing
    assert "should be greater than or equal to 1" in kubectl.fails(
        "apply", "-f", "-", stdin=wheel.replace("size: 3", "size: 0")
    )
    assert "too large a wheel" in kubectl.fails("apply", "-f", "-", stdin=wheel.replace("size: 3", "size: 100"))
    assert 'must be of type integer: "string"' in kubectl.fails(
        "apply", "-f", "-", stdin=wheel.replace("size: 3", "size: big")
    )
    unknown = kubectl.fails("apply", "-f", "-", stdin=wheel.replace("size: 3", "size: 3, colour: red"))
    assert 'unknown field "spec.colour"' in unknown
    kubectl("patch", f"wheel.{group}", "w", "--type=merge", "--subresource=status", "-p", '{"status":{"replicas":1}}')
    assert kubectl("scale", f"wheels.{group}/w", "--replicas=4") == f"wheel.{group}/w scaled\n"
    current = kubectl.json("get", f"wheels.v1beta1.{group}", "w")
    assert (current["apiVersion"], current["spec"]["replicas"]) == (f"{group}/v1beta1", 4)
    assert current["metadata"]["generation"] == 2
    assert "How large the wheel is." in kubectl("explain", "wheels.spec.size", f"--api-version={group}/v1")
    assert f"wheels.{group}" in kubectl("api-resources", f"--api-group={group}", "-o", "name").split()
    served = kubectl.apply(wheel.replace("size: 3", "size: 5"), "--server-side", "--force-conflicts")
    assert served == f"wheel.{group}/w serverside-applied\n"
    assert f"wheel.{group}/w" in kubectl("get", "all", "-o", "name").split()
    assert "Size:" in kubectl("describe", f"wheels.{group}", "w")
    assert kubectl("delete", f"wheels.{group}", "w").startswith(f'wheel.{group} "w" deleted')
    kubectl.apply(wheel)
    assert "deleted" in kubectl("delete", "crd", f"wheels.{group}", "--timeout=30s")
    assert "the server doesn't have a resource type" in kubectl.fails("get", f"wheels.{group}")


def test_definitions_are_checked(kubectl: Kubectl) -> None:
    definition = _DEFINITION.replace("NAME", kubectl.namespace)
    wrong_name = kubectl.fails("create", "-f", "-", stdin=definition.replace("name: wheels.", "name: rings."))
    assert 'metadata.name: Invalid value: "rings.' in wrong_name
    two_stored = kubectl.fails("create", "-f", "-", stdin=definition.replace("storage: false", "storage: true"))
    assert "must have exactly one version marked as storage version" in two_stored
    wrong_rule = kubectl.fails("create", "-f", "-", stdin=definition.replace("self.size < 100", "self.size <"))
    assert "compilation failed" in wrong_rule
    no_type = kubectl.fails("create", "-f", "-", stdin=definition.replace("note: {type: string, ", "note: {"))
    assert "type: Required value" in no_type
