"""Conversion webhooks of custom resources: their requests, and checks of their answers.

A webhook changes what an object says and may change its labels and annotations; the rest of its metadata is the server's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

_GROUP = "apiextensions.k8s.io"
_KNOWN = ("v1", "v1beta1")
_SAME = (("name", "name"), ("namespace", "namespace"), ("uid", "UID"))


class ConversionFailed(Exception):
    """An answer that cannot be used; the text is upstream's."""


def review(versions: Sequence[Any], objects: Sequence[Object], api_version: str, uid: str) -> Object:
    """The question, in the first version that is known here."""
    known = next((each for each in versions if each in _KNOWN), None)
    if known is None:
        raise ConversionFailed("no supported conversion review versions")
    request = {"uid": uid, "desiredAPIVersion": api_version, "objects": list(objects)}
    return {"kind": "ConversionReview", "apiVersion": f"{_GROUP}/{known}", "request": request}


def kind_text(object_: Mapping[str, Any]) -> str:
    """The type of an object as messages name it."""
    return f"{object_.get('apiVersion', '')}, Kind={object_.get('kind', '')}"


def converted(asked: Object, answer: Any) -> list[Object]:
    """The objects of an answer, each instead of the one that was asked about; ConversionFailed."""
    originals, api_version = asked["request"]["objects"], asked["request"]["desiredAPIVersion"]
    subject = f"conversion webhook for {kind_text(originals[0])}"
    found = _objects(asked, answer, subject)
    if len(found) != len(originals):
        raise ConversionFailed(f"{subject} returned {len(found)} objects, expected {len(originals)}")
    return [
        _checked(original, each, api_version, f"{subject} returned invalid converted object at index {index}")
        for index, (original, each) in enumerate(zip(originals, found, strict=True))
    ]


def _objects(asked: Object, answer: Any, subject: str) -> list[Any]:
    answer = answer if isinstance(answer, dict) else {}
    response = answer.get("response")
    wanted, got = kind_text(asked), kind_text(answer)
    uid = asked["request"]["uid"]
    why = ""
    # What answered in v1beta1 was never held to these.
    strict = asked["apiVersion"] == f"{_GROUP}/v1"
    if strict and wanted != got:
        why = f"expected webhook response of {wanted}, got {got}"
    elif not isinstance(response, dict):
        why = "no response provided"
    elif strict and response.get("uid") != uid:
        why = f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
    else:
        result = response.get("result")
        result = result if isinstance(result, dict) else {}
        if result.get("status") != "Success":
            told = f"response.result.status was '{result.get('status', '')}', not 'Success'"
            why = str(result.get("message") or told)
    if why:
        raise ConversionFailed(f"{subject} failed: {why}")
    assert isinstance(response, dict), "a response was provided"
    objects = response.get("convertedObjects")
    return objects if isinstance(objects, list) else []


def _checked(original: Object, found: Any, api_version: str, subject: str) -> Object:
    if not isinstance(found, dict):
        raise ConversionFailed(f"{subject}: not an object")
    if found.get("apiVersion") != api_version:
        told = f"invalid groupVersion (expected {api_version}, received {found.get('apiVersion', '')})"
        raise ConversionFailed(f"{subject}: {told}")
    if found.get("kind") != original.get("kind"):
        told = f"invalid kind (expected {original.get('kind', '')}, received {found.get('kind', '')})"
        raise ConversionFailed(f"{subject}: {told}")
    metadata, before = found.get("metadata"), original.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ConversionFailed(f"{subject}: missing metadata in converted object")
    for name, title in _SAME:
        if (metadata.get(name) or "") != (before.get(name) or ""):
            told = f"must have the same {title}: {before.get(name) or ''} != {metadata.get(name) or ''}"
            raise ConversionFailed(f"{subject}: {told}")
    kept = {name: value for name, value in before.items() if name not in ("labels", "annotations")}
    kept |= {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {**found, "metadata": kept}
