"""CustomResourceDefinitions of apiextensions.k8s.io/v1beta1, in which kube-apiserver stores every definition, as v1.

What v1 has in each version, v1beta1 may have once for all of them; kube-apiserver moves there what is the same in all versions. No one
can send v1beta1 any more (it is not served since Kubernetes 1.22), so this is the way of reading only, and there is none back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

V1BETA1 = "apiextensions.k8s.io/v1beta1"
V1 = "apiextensions.k8s.io/v1"

Object = dict[str, Any]

# What v1 has in versions only, by the name that it has in the spec of v1beta1.
_MOVED = {
    "subresources": "subresources",
    "validation": "schema",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def from_v1beta1(definition: Mapping[str, Any]) -> Object:
    """The definition in v1. Input is never changed; fields that are not known are kept."""
    spec = dict(definition.get("spec") or {})
    name = spec.pop("version", "")
    versions = spec.get("versions") or ([{"name": name, "served": True, "storage": True}] if name else [])
    shared = {new: spec.pop(old) for old, new in _MOVED.items() if spec.get(old) is not None}
    spec["versions"] = [_version({**one, **shared}) for one in versions]
    # v1beta1 keeps unknown fields unless told otherwise, v1 prunes them.
    if spec.setdefault("preserveUnknownFields", True) is False:
        del spec["preserveUnknownFields"]
    if isinstance(spec.get("conversion"), Mapping):
        spec["conversion"] = _conversion(spec["conversion"])
    return {**definition, "apiVersion": V1, "spec": spec}


def _version(version: Mapping[str, Any]) -> Object:
    columns = version.get("additionalPrinterColumns")
    if not columns:
        return dict(version)
    return {**version, "additionalPrinterColumns": [_column(column) for column in columns]}


def _column(column: Mapping[str, Any]) -> Object:
    return {"jsonPath" if name == "JSONPath" else name: value for name, value in column.items()}


def _conversion(conversion: Mapping[str, Any]) -> Object:
    """v1 has in `webhook` what v1beta1 has beside the strategy."""
    webhook = {
        new: conversion[old]
        for old, new in (
            ("webhookClientConfig", "clientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        )
        if conversion.get(old) is not None
    }
    kept = {
        name: value for name, value in conversion.items() if not name.startswith(("webhookClient", "conversionRev"))
    }
    return {**kept, "webhook": webhook} if webhook else kept
