"""What claims say that is allowed and does not do what it seems to."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, cluster, findings, fixed, hardware, the

_CONFIG = """\
config:
- opaque:
    driver: gpu.nvidia.com
    parameters:
      apiVersion: resource.nvidia.com/v1beta1
      kind: GpuConfig
      sharing: {strategy: TimeSlicing}
"""
_REQUEST = "requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]\n"


def _claim(devices: str, name: str = "c") -> str:
    head = f"apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {{name: {name}}}\nspec:\n  devices:\n"
    return head + indent(dedent(devices), "    ")


def _template(devices: str) -> str:
    head = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\nspec:\n  spec:\n    devices:\n"
    return head + indent(dedent(devices), "      ")


def _pod(*containers: str) -> str:
    listed = "".join(
        f"  - name: {name}\n    image: i\n    resources: {{claims: [{{name: gpu}}]}}\n" for name in containers
    )
    claims = "  resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]\n"
    return f"---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n{listed}{claims}"


# --- sharing ---


def test_sharing_in_a_template_is_warned_of() -> None:
    found = the(_template(_REQUEST + _CONFIG), "sharing-in-template")
    assert found.severity is Severity.WARNING
    assert found.line == 14
    assert by_rule(_template(_REQUEST + _CONFIG) + _pod("one"), "sharing-in-template")


def test_sharing_among_the_containers_of_a_pod_is_what_a_template_can_do() -> None:
    assert not by_rule(_template(_REQUEST + _CONFIG) + _pod("one", "two"), "sharing-in-template")


def test_sharing_in_a_claim_is_right() -> None:
    assert findings(_claim(_REQUEST + _CONFIG)) == []


# --- configuration ---


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kind: GpuConfig", "kind: GPUConfig", "kind 'GPUConfig'"),
        ("strategy: TimeSlicing", "strategy: Timeslicing", "unknown GPU sharing strategy: Timeslicing"),
        ("strategy: TimeSlicing", "stratgy: TimeSlicing", 'unknown field "sharing.stratgy"'),
        ("{strategy: TimeSlicing}", "{strategy: TimeSlicing, timeSlicingConfig: {interval: Forever}}", "Forever"),
        ("{strategy: TimeSlicing}", "{strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 150}}", "100"),
        ("resource.nvidia.com/v1beta1", "gpu.nvidia.com/v1alpha1", "expected GpuConfig"),
    ],
)
def test_parameters_that_the_driver_would_refuse_are_errors(old: str, new: str, problem: str) -> None:
    found = the(_claim(_REQUEST + _CONFIG.replace(old, new)), "unknown-config")
    assert found.severity is Severity.ERROR
    assert problem in found.message


def test_nothing_is_said_about_parameters_of_other_drivers() -> None:
    assert findings(_claim(_REQUEST + _CONFIG.replace("driver: gpu.nvidia.com", "driver: fpga.example.com"))) == []


# --- alternatives ---


def _alternatives(*alternatives: str) -> str:
    listed = "".join(f"  - {alternative}\n" for alternative in alternatives)
    return f"requests:\n- name: gpu\n  firstAvailable:\n{listed}"


_ONE = "{name: one, deviceClassName: a}"
_BIG = "{name: big, deviceClassName: a, count: 2}"
_FINE = "{name: fine, deviceClassName: a, selectors: [{cel: {expression: 'true'}}]}"
_OTHER = "{name: other, deviceClassName: b}"
_ALL = "{name: every, deviceClassName: a, allocationMode: All}"


@pytest.mark.parametrize(("before", "after"), [(_ONE, _BIG), (_ONE, _FINE), (_ONE, _ONE.replace("one", "two"))])
def test_an_alternative_that_asks_for_no_less_is_never_chosen(before: str, after: str) -> None:
    assert the(_claim(_alternatives(before, after)), "unreachable-alternative").line == 10


@pytest.mark.parametrize(("before", "after"), [(_BIG, _ONE), (_FINE, _ONE), (_ONE, _OTHER), (_FINE, _BIG)])
def test_an_alternative_that_asks_for_less_or_something_else_makes_sense(before: str, after: str) -> None:
    assert findings(_claim(_alternatives(before, after))) == []


def test_alternatives_that_differ_in_their_configuration_make_sense() -> None:
    config = _CONFIG.replace("- opaque", "- requests: [gpu/two]\n  opaque")
    text = _claim(_alternatives(_ONE, _ONE.replace("one", "two")) + config)
    assert not by_rule(text, "unreachable-alternative")


def test_an_alternative_with_a_toleration_makes_sense() -> None:
    tolerant = "{name: two, deviceClassName: a, tolerations: [{key: k, operator: Exists}]}"
    assert findings(_claim(_alternatives(_ONE, tolerant))) == []


def test_all_devices_as_an_alternative_is_warned_of() -> None:
    assert the(_claim(_alternatives(_ALL, _OTHER)), "all-in-alternative").severity is Severity.WARNING


# --- constraints ---


def _constrained(requests: str, constraint: str) -> str:
    return _claim(f"requests: [{requests}]\nconstraints: [{constraint}]\n")


_A = "{name: a, exactly: {deviceClassName: gpu.nvidia.com}}"
_B = "{name: b, exactly: {deviceClassName: gpu.nvidia.com}}"
_TWO = "{name: a, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}"
_MATCH = "{matchAttribute: resource.kubernetes.io/pcieRoot}"


def test_a_constraint_on_one_device_has_no_effect() -> None:
    assert by_rule(_constrained(_A, _MATCH), "constraint-without-effect")
    named = "{requests: [a], matchAttribute: resource.kubernetes.io/pcieRoot}"
    assert by_rule(_constrained(f"{_A}, {_B}", named), "constraint-without-effect")


def test_a_constraint_on_several_devices_has_an_effect() -> None:
    assert not by_rule(_constrained(f"{_A}, {_B}", _MATCH), "constraint-without-effect")
    assert not by_rule(_constrained(_TWO, _MATCH), "constraint-without-effect")


def test_a_constraint_about_an_attribute_that_no_device_has_is_told() -> None:
    wrong = "{matchAttribute: resource.kubernetes.io/pcieroot}"
    found = the(_constrained(_TWO, wrong), "constraint-attribute", hardware("h100x8"))
    assert found.fix is not None
    assert "resource.kubernetes.io/pcieRoot" in found.fix.text
    assert not by_rule(_constrained(_TWO, _MATCH), "constraint-attribute", hardware("h100x8"))


# --- classes, admin access ---


def test_a_class_without_selectors_is_warned_of() -> None:
    text = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: c}\nspec: {}\n"
    assert the(text, "class-without-selectors").severity is Severity.WARNING


_ADMIN = "requests: [{name: all, exactly: {deviceClassName: c, allocationMode: All, adminAccess: true}}]\n"
_NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {%s}}\n"
_LABEL = 'resource.kubernetes.io/admin-access: "true"'


def test_admin_access_depends_on_the_label_of_the_namespace() -> None:
    assert the(_claim(_ADMIN), "admin-access").severity is Severity.NOTE
    assert the(_claim(_ADMIN) + _NAMESPACE % "", "admin-access").severity is Severity.ERROR
    assert not by_rule(_claim(_ADMIN) + _NAMESPACE % _LABEL, "admin-access")
    known = cluster((_NAMESPACE % _LABEL).removeprefix("---\n"))
    assert not by_rule(_claim(_ADMIN), "admin-access", known)


def test_a_constraint_or_config_on_a_request_that_is_not_there_is_told_with_the_nearest() -> None:
    text = """\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: c}
        spec:
          devices:
            requests:
            - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}
            - {name: nic, firstAvailable: [{name: fast, deviceClassName: dranet}, {name: slow, deviceClassName: dranet}]}
            constraints:
            - {requests: [gpus, nic/fats], matchAttribute: resource.kubernetes.io/pcieRoot}
        """
    fixes = [found.fix.text for found in by_rule(text, "invalid-value") if found.fix is not None]
    assert fixes == ['did you mean "gpu"?', 'did you mean "nic/fast"?']


def test_a_misspelt_attribute_of_kubernetes_own_is_told_without_devices_and_fixed() -> None:
    text = """\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaim
        metadata: {name: c}
        spec:
          devices:
            requests:
            - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}
            constraints:
            - matchAttribute: "resource.kubernetes.io/pcieroot"
        """
    assert the(text, "constraint-attribute").severity is Severity.WARNING
    assert 'matchAttribute: "resource.kubernetes.io/pcieRoot"' in fixed(text)
