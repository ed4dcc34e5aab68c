"""Containers that have ended are counted once."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from allot.node.terminations import Terminations
from allot.process.metrics import render

Object = dict[str, Any]


def ended(name: str, code: int, reason: str) -> Object:
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason}}}


def running(name: str) -> Object:
    return {"name": name, "state": {"running": {}}}


def test_each_end_counts_when_a_status_first_says_so() -> None:
    registry = CollectorRegistry()
    terminations = Terminations(registry)
    first = {"containerStatuses": [running("a"), ended("b", 139, "Error")]}
    terminations.note({}, first)
    second = {
        "initContainerStatuses": [ended("i", 0, "Completed")],
        "containerStatuses": [ended("a", 139, "Error"), ended("b", 139, "Error")],
        "ephemeralContainerStatuses": [ended("e", 1, "Error")],
    }
    terminations.note(first, second)
    terminations.note(second, second)
    terminations.note(second, {"containerStatuses": [{"name": "a", "state": {"waiting": {}}}]})
    told = [each for each in render(registry).decode().splitlines() if not each.startswith("#")]
    name = "kubelet_terminated_containers_total"
    assert told == [
        f'{name}{{container_type="container",exit_code="139",reason="Error"}} 2.0',
        f'{name}{{container_type="init_container",exit_code="0",reason="Completed"}} 1.0',
        f'{name}{{container_type="ephemeral_container",exit_code="1",reason="Error"}} 1.0',
    ]
