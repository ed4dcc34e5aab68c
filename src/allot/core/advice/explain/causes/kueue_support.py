"""Claims that Kueue cannot count: what of them it does not support, and in which template that is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from allot.core.advice.explain.causes.kueue_quotas import Held
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import observed_v1
from allot.core.model import resource_v1 as api

_NOT_SUPPORTED = re.compile(r"(?:^|: )(?P<what>[^:]+?) (?:is|are) not supported")
_PLACE = re.compile(r"podSets\[(?P<set>\d{1,4})\].*?resourceClaims\[(?P<claim>\d{1,4})\]")
_QUOTED = re.compile(r'Invalid value: "(?P<template>[^"]+)"')


# For what a claim has for all its requests.
_ANY = "*"


class _Kind(NamedTuple):
    """What Kueue does not support. word: in its message; field: as users write it; used: the request of a claim that does, or any word."""

    word: str
    field: str
    instead: str
    used: Callable[[api.ResourceClaimSpec], str]


def _first_available(spec: api.ResourceClaimSpec) -> str:
    return next((request.name for request in spec.devices.requests if request.first_available), "")


def _of_requests(is_used: Callable[[api.ExactDeviceRequest], bool]) -> Callable[[api.ResourceClaimSpec], str]:
    def found(spec: api.ResourceClaimSpec) -> str:
        exact = ((request.name, request.exactly) for request in spec.devices.requests)
        return next((name for name, each in exact if each is not None and is_used(each)), "")

    return found


_KINDS = (
    _Kind(
        "firstavailable",
        "firstAvailable",
        "exactly instead of firstAvailable in {}, for one kind of devices (a selector can allow several models)",
        _first_available,
    ),
    _Kind(
        "all",
        "allocationMode: All",
        "a count of devices instead of allocationMode: All in {}",
        _of_requests(lambda each: each.allocation_mode == "All"),
    ),
    _Kind("adminaccess", "adminAccess", "no adminAccess in {}", _of_requests(lambda each: bool(each.admin_access))),
    _Kind(
        "selector",
        "selectors",
        "a DeviceClass that has the selectors instead of them in {}",
        _of_requests(lambda each: bool(each.selectors)),
    ),
    _Kind("constraint", "constraints", "no constraints in {}", lambda spec: _ANY if spec.devices.constraints else ""),
    _Kind(
        "config",
        "config",
        "the config of a DeviceClass instead of one in {}",
        lambda spec: _ANY if spec.devices.config else "",
    ),
)


def not_supported(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, said: str) -> Held | None:
    """Why Kueue cannot count the devices of a workload; None if it says something else."""
    found = _NOT_SUPPORTED.search(said)
    if found is None:
        return None
    what, namespace = found["what"], workload.metadata.namespace
    kind = next((each for each in _KINDS if each.word in what.lower()), None)
    name = next(filter(None, _names(what_if, workload, said, kind)), "")
    if not name:
        return None
    template = f"ResourceClaimTemplate {namespace}/{name}"
    if kind is None:
        return Held(
            f"{template} uses what Kueue does not support: {what}",
            f"drop from {template} what Kueue does not support ({what}), and recreate it, then the workload",
        )
    stored = what_if.get(api.ResourceClaimTemplate, name, namespace)
    request = kind.used(stored.spec.spec) if stored is not None else ""
    where = f'request "{request}" of {template}' if request not in ("", _ANY) else template
    return Held(
        f"{where} uses {kind.field}, which Kueue does not support ({found[0].removeprefix(': ')})",
        f"use {kind.instead.format(template)}, and recreate the template, then the workload",
    )


def _names(what_if: WhatIfCluster, workload: observed_v1.KueueWorkload, said: str, kind: _Kind | None) -> Iterator[str]:
    """The template that a message is about: the one that it names, the one at the place that it names, or one that uses the feature."""
    sets = workload.spec.pod_sets
    quoted, place = _QUOTED.search(said), _PLACE.search(said)
    if quoted is not None:
        yield quoted["template"]
    entries = [each for pods in sets for each in pods.template.spec.resource_claims]
    if place is not None and int(place["set"]) < len(sets):
        claims = sets[int(place["set"])].template.spec.resource_claims
        yield from (each.resource_claim_template_name or "" for each in claims[int(place["claim"]) :][:1])
    for name in (each.resource_claim_template_name or "" for each in entries):
        found = what_if.get(api.ResourceClaimTemplate, name, workload.metadata.namespace)
        if found is not None and kind is not None and kind.used(found.spec.spec):
            yield name
