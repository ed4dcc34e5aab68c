"""What agents ask before they take on a pod, against a real API server in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from allot.apiserver.assembly import Settings, running
from allot.client.api import Client, PatchType
from allot.client.events import EventRecorder
from allot.client.informers import Informers
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from allot.core.model.core_v1 import Node
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.node.admission import Admission
from allot.node.reports import Reports
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore

Object = dict[str, Any]


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running(Settings(directory=tmp_path, port=0), MemoryStore()) as server:
        made = client_of(server, ADMINISTRATOR)
        status = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "9"}}
        node = {"metadata": {"name": "n1", "labels": {"zone": "a"}}, "status": status}
        await made.resource("", "v1", "nodes", namespaced=False).create({"apiVersion": "v1", "kind": "Node", **node})
        yield made


def admission_of(client: Client) -> Admission:
    """Of an agent that has not heard of its node yet."""
    return Admission(client, Informers(client, SystemClock(), SystemIds()).typed(Node))


def pod(name: str, cpu: str = "1", **spec: Any) -> RunnablePod:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return decode_runnable({"metadata": metadata, "spec": {"nodeName": "n1", "containers": [container], **spec}})


async def test_labels_are_read_again_before_they_decide_against_a_pod(client: Client) -> None:
    admission = admission_of(client)
    wants = pod("p", nodeSelector={"zone": "b"})
    found = await admission.admit(wants)
    assert found is not None
    assert found.reason == "NodeAffinity"
    nodes = client.resource("", "v1", "nodes", namespaced=False)
    await nodes.patch("n1", {"metadata": {"labels": {"zone": "b"}}}, PatchType.MERGE)
    assert await admission.admit(wants) is None


async def test_a_pod_whose_node_cannot_be_read_is_taken_on(client: Client) -> None:
    assert await admission_of(client).admit(pod("p", nodeName="absent")) is None


async def test_a_resize_that_waits_is_tried_again_when_there_is_room_the_most_important_first(client: Client) -> None:
    admission = admission_of(client)
    for name in ("large", "one", "two"):
        assert await admission.admit(pod(name, "2" if name == "large" else "1")) is None
    woken: list[str] = []
    for name, priority in (("one", 0), ("two", 7)):
        found = admission.resize(pod(name, "3", priority=priority), lambda name=name: woken.append(name))
        assert found is not None
        assert found.reason == "OutOfcpu"
    admission.leave(pod("large"))
    assert woken == ["two", "one"]
    assert admission.resize(pod("two", "3"), lambda: None) is None
    admission.freed("n1")
    assert woken == ["two", "one", "one"]


async def test_a_pod_that_is_not_understood_fails_and_says_why(client: Client) -> None:
    pods = client.resource("", "v1", "pods", namespaced=True)
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "i"}]}
    raw = await pods.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"}, "spec": spec}, "default")
    clock, ids = SystemClock(), SystemIds()
    events = EventRecorder(client, clock, ids, controller="kubelet", instance="n1")
    await Reports(client, events).reject(raw, "spec.x: expected a number")
    status = (await pods.get("odd", "default"))["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    text = "Pod was rejected: the pod is not understood by the agent of its node: spec.x: expected a number"
    assert status["message"] == text
