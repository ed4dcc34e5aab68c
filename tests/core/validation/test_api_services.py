"""Rules for APIServices: upstream's, word by word."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.validation.builtin.api_services import API_SERVICE


def api_service(**changes: Any) -> dict[str, Any]:
    spec = {
        "group": "wardle.example.com",
        "version": "v1alpha1",
        "groupPriorityMinimum": 2000,
        "versionPriority": 200,
        "service": {"namespace": "default", "name": "sample", "port": 443},
        **changes,
    }
    return {"metadata": {"name": f"{spec['version']}.{spec['group']}"}, "spec": spec}


def told(object_: dict[str, Any]) -> str:
    return "\n".join(f"{each.error.field}: {each.error.message}" for each in API_SERVICE.check(object_))


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({}, "v2.wardle.example.com", 'must be `spec.version+"."+spec.group`: "v1alpha1.wardle.example.com"'),
        ({"version": "V1"}, "", "spec.version: Invalid value"),
        ({"group": ""}, "v1alpha1.", "spec.group: Required value: only v1 may have an empty group"),
        (
            {"groupPriorityMinimum": 0},
            "",
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
        ),
        (
            {"versionPriority": 1001},
            "",
            "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
        ),
        (
            {"service": None, "caBundle": "YQ=="},
            "",
            'spec.caBundle: Invalid value: "1 bytes": local APIServices may not have',
        ),
        ({"service": None, "insecureSkipTLSVerify": True}, "", "local APIServices may not have insecureSkipTLSVerify"),
        ({"service": {"namespace": "", "name": ""}}, "", "spec.service.namespace: Required value"),
        ({"service": {"namespace": "a", "name": "b", "port": 0}}, "", "port is not valid: must be between 1 and 65535"),
        ({"caBundle": "YQ==", "insecureSkipTLSVerify": True}, "", "may not be true if caBundle is present"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], name: str, expected: str) -> None:
    made = api_service(**changes)
    if name:
        made["metadata"]["name"] = name
    assert expected in told(made)


def test_what_is_right_is_accepted() -> None:
    assert told(api_service()) == ""
    assert told(api_service(group="", version="v1", service=None)) == ""
    assert told(api_service(caBundle="YQ==")) == ""


def test_conditions_are_true_false_or_unknown() -> None:
    new = {"status": {"conditions": [{"type": "Available", "status": "Maybe"}]}}
    (found,) = API_SERVICE.check_update(new, {}, "status")
    text = 'Unsupported value: "Maybe": supported values: "False", "True", "Unknown"'
    assert (found.error.field, found.error.message) == ("status.conditions[0].status", text)
    assert not API_SERVICE.check_update(new, {}, "")
