"""Installs or updates allot's custom resource definitions on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists
from allot.process.clock import Clock
from allot.yaml_values.reader import documents

Object = dict[str, Any]

_DEFINITION = "CustomResourceDefinition"
_PLURALS = {
    _DEFINITION: "customresourcedefinitions",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "PriorityClass": "priorityclasses",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
# How long a server may take to serve a new kind.
_SERVED_S = 30.0
_PAUSE_S = 0.05


class NotServed(Exception):
    """A server does not serve a defined kind."""


def definition_texts() -> dict[str, str]:
    """The files by name, in order. They are the chart's, so that Helm finds them too."""
    folder = files("allot.installation") / "chart" / "definitions"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name: file.read_text() for file in found}


def objects() -> Iterator[Object]:
    """All objects of all files, in the order of their names."""
    for text in definition_texts().values():
        for document in documents(text):
            yield document.value


async def install(client: Client, clock: Clock) -> None:
    """Create missing definitions, update different ones, and wait until all kinds are served. NotServed on timeout."""
    defined = []
    for object_ in objects():
        name = object_["metadata"]["name"]
        await _put(client, object_)
        if object_["kind"] == _DEFINITION:
            defined.append(name)
    definitions = client.resource("apiextensions.k8s.io", "v1", _PLURALS[_DEFINITION], namespaced=False)
    ends_at = clock.monotonic() + _SERVED_S
    for name in defined:
        while not _is_served(await definitions.get(name)):
            if clock.monotonic() > ends_at:
                raise NotServed(f"custom resource definition {name} is not established after {_SERVED_S:g} s")
            await clock.sleep(_PAUSE_S)


async def _put(client: Client, object_: Object) -> None:
    group, _, version = object_["apiVersion"].rpartition("/")
    namespace = object_["metadata"].get("namespace", "")
    resource = client.resource(group, version, _PLURALS[object_["kind"]], namespaced=bool(namespace))
    try:
        await resource.create(object_, namespace)
    except AlreadyExists:
        if object_["kind"] == "PriorityClass":
            # The value of a class is immutable, and an existing one belongs to the user.
            return
        changed = {key: value for key, value in object_.items() if key not in ("apiVersion", "kind")}
        await resource.patch(object_["metadata"]["name"], changed, PatchType.MERGE, namespace)


def _is_served(definition: Object) -> bool:
    # kube-apiserver sends null for a definition that has not been processed yet.
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
