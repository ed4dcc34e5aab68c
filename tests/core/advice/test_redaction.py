"""What is private stays out of snapshots."""

from __future__ import annotations

import pytest

from allot.core.advice.redaction import KEPT_ANNOTATIONS, redacted


def test_environment_commands_and_arguments_of_containers_are_left_out() -> None:
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "PASSWORD", "value": "secret"}],
        "envFrom": [{"secretRef": {"name": "s"}}],
        "command": ["run", "--token=secret"],
        "args": ["secret"],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container], "initContainers": [container]}}
    found = redacted(pod)
    assert "secret" not in repr(found)
    assert found["spec"]["containers"] == [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
    assert "secret" in repr(pod), "what was given is not changed"


def test_pod_templates_are_looked_into() -> None:
    template = {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "secret"}]}]}}
    found = redacted({"kind": "ReplicaSet", "metadata": {}, "spec": {"replicas": 1, "template": template}})
    assert found["spec"] == {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}


def test_copies_of_the_object_and_field_managers_are_left_out() -> None:
    copies = {"kubectl.kubernetes.io/last-applied-configuration": "secret"}
    found = redacted({"kind": "Pod", "metadata": {"name": "p", "annotations": copies, "managedFields": [{}]}})
    assert found["metadata"] == {"name": "p"}


def test_annotations_that_answers_depend_on_stay_and_no_others() -> None:
    needed = dict.fromkeys(sorted(KEPT_ANNOTATIONS), "true")
    found = redacted({"kind": "Pod", "metadata": {"annotations": {**needed, "vault.example.com/token": "secret"}}})
    assert found["metadata"] == {"annotations": needed}


def test_annotations_can_be_kept_but_copies_of_objects_never() -> None:
    copies = {"kubectl.kubernetes.io/last-applied-configuration": "secret", "a": "b"}
    found = redacted({"kind": "Pod", "metadata": {"annotations": copies}}, keep_annotations=True)
    assert found["metadata"] == {"annotations": {"a": "b"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"template": {"metadata": {"annotations": {"a": "secret"}}}},
        {"jobTemplate": {"metadata": {"annotations": {"a": "secret"}}}},
        {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "args": ["secret"]}]}}}}},
        {"volumeClaimTemplates": [{"metadata": {"annotations": {"a": "secret"}}}]},
        {"metadata": {"annotations": {"a": "secret"}}, "spec": {"devices": {}}},
    ],
)
def test_templates_of_every_kind_are_looked_into(spec: dict[str, object]) -> None:
    assert "secret" not in repr(redacted({"kind": "Any", "spec": spec}))


def test_data_of_any_object_is_left_out() -> None:
    assert redacted({"kind": "ConfigMap", "data": {"k": "secret"}, "stringData": {}}) == {"kind": "ConfigMap"}


def test_what_is_not_of_the_expected_shape_is_left_alone() -> None:
    odd = {"kind": "Pod", "metadata": 3, "spec": {"containers": ["x", 1], "template": 7}}
    assert redacted(odd) == odd
