"""What conversion webhooks are asked, and what their answers have to be."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.customresources.conversion import ConversionFailed, converted, review

Object = dict[str, Any]
KIND = "example.com/v1, Kind=Widget"


def widget(version: str = "v1", **metadata: Any) -> Object:
    meta = {"name": "w", "namespace": "default", "uid": "u1", **metadata}
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": meta}


def asked(version: str = "v1") -> Object:
    return review([version], [widget(generation=3, labels={"a": "b"})], "example.com/v2", "r1")


def answer(*objects: Any, version: str = "v1", **response: Any) -> Object:
    told = {"uid": "r1", "result": {"status": "Success"}, "convertedObjects": list(objects), **response}
    return {"kind": "ConversionReview", "apiVersion": f"apiextensions.k8s.io/{version}", "response": told}


def test_the_first_version_that_is_known_is_spoken() -> None:
    assert review(["v9", "v1beta1", "v1"], [], "g/v2", "u")["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    with pytest.raises(ConversionFailed, match="no supported conversion review versions"):
        review(["v9"], [], "g/v2", "u")


def test_labels_and_annotations_are_the_webhooks_and_other_metadata_the_servers() -> None:
    found = widget("v2", labels={"c": "d"}, annotations={"e": "f"}, generation=99, finalizers=["mine"])
    (after,) = converted(asked(), answer({**found, "spec": {"size": 1}}))
    metadata = {"name": "w", "namespace": "default", "uid": "u1", "generation": 3}
    assert after["metadata"] == {**metadata, "labels": {"c": "d"}, "annotations": {"e": "f"}}
    assert after["spec"] == {"size": 1}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind="),
        ({**answer(), "response": None}, "failed: no response provided"),
        (answer(uid="r2"), 'failed: expected response.uid="r1", got "r2"'),
        (answer(result={"status": "Failed", "message": "cannot"}), "failed: cannot"),
        (answer(result={}), "failed: response.result.status was '', not 'Success'"),
        (answer(), "returned 0 objects, expected 1"),
        (answer(widget()), "invalid groupVersion (expected example.com/v2, received example.com/v1)"),
        (answer({**widget("v2"), "kind": "Other"}), "invalid kind (expected Widget, received Other)"),
        (answer(widget("v2", name="other")), "must have the same name: w != other"),
        (answer(widget("v2", namespace="")), "must have the same namespace: default != "),
        (answer(widget("v2", uid="u2")), "must have the same UID: u1 != u2"),
        (answer({"apiVersion": "example.com/v2", "kind": "Widget"}), "missing metadata in converted object"),
        (answer("rubbish"), "not an object"),
    ],
)
def test_answers_that_cannot_be_used(given: Any, told: str) -> None:
    with pytest.raises(ConversionFailed) as failed:
        converted(asked(), given)
    assert str(failed.value).startswith(f"conversion webhook for {KIND} ")
    assert str(failed.value).endswith(told)


def test_answers_in_v1beta1_need_neither_type_nor_uid() -> None:
    told = answer(widget("v2"), version="v1beta1", uid="other")
    assert converted(asked("v1beta1"), {"response": told["response"]})
