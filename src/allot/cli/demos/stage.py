"""Plays a demonstration: announces each step, runs its commands, waits for conditions, and shows everything.

Waiting is polling: a step continues as soon as the pods are in the named state, and fails with the state seen instead.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from allot.cli.demos.commands import Commands, Ran
from allot.cli.demos.script import Demo, Run, Say, Show, Step, Wait
from allot.cli.errors import CommandError
from allot.client.api import Client, ResourceClient
from allot.client.discovery import UnknownResource
from allot.client.errors import NotFound
from allot.process.clock import Clock
from allot.yaml_values.reader import documents
from allot.yaml_values.writer import yaml_text

MANIFESTS = Path(__file__).parent / "manifests"
STATE_S_MAX = 60.0
_LOG_S_MAX = 10.0
_POLL_S = 0.1
# Between two runs of a command whose output does not match yet: each is a process.
_AGAIN_S = 0.25
_ACCENTS = {"Running": "green", "Pending": "yellow", "Error": "red", "Failed": "red"}
_LEFT_OUT = "  …"
_SHOWN_MAX = 2000


class DemoFailed(CommandError):
    """The cluster did not do what the demonstration is about."""

    exit_code = 1


class Stage:
    """Where a demonstration is played. pause: called between steps, if the audience wants that."""

    def __init__(
        self,
        console: Console,
        commands: Commands,
        client: Client,
        clock: Clock,
        pause: Callable[[], None] | None = None,
    ) -> None:
        self._console = console
        self._commands = commands
        self._client = client
        self._clock = clock
        self._pause = pause

    async def play(self, demo: Demo) -> None:
        """From the first step to the last."""
        for step in demo.steps:
            await self._step(demo, step)

    async def refuse_if_in_use(self, demo: Demo) -> None:
        """On someone's cluster: existing objects of the namespace must not be mixed up with those of the demonstration."""
        namespaces = self._client.resource("", "v1", "namespaces", namespaced=False)
        await self._refuse(f"namespace {demo.namespace}", namespaces, demo.namespace)
        for kind, name, resource in await self._cluster_wide(demo):
            await self._refuse(f"{kind.lower()} {name}", resource, name)

    async def _refuse(self, what: str, resource: ResourceClient, name: str) -> None:
        try:
            await resource.get(name)
        except NotFound:
            return
        raise DemoFailed(
            f"{what}: already exists in this cluster, and the demonstration would use and delete it",
            "delete it, or omit --kubeconfig to run on a separate cluster",
        )

    async def _cluster_wide(self, demo: Demo) -> list[tuple[str, str, ResourceClient]]:
        """Objects that a demonstration creates outside its namespace: kind, name, and access to them."""
        found = []
        for value in _objects(demo):
            group = value["apiVersion"].rpartition("/")[0]
            if "namespace" in value["metadata"] or value["kind"] == "Namespace":
                continue
            try:
                resource = await self._client.of_name(f"{value['kind'].lower()}.{group}")
            except UnknownResource:
                raise DemoFailed(
                    f"{value['apiVersion']} {value['kind']}: this cluster does not serve it",
                    "allot install crds installs it",
                ) from None
            found.append((value["kind"], value["metadata"]["name"], resource))
        return found

    async def clear(self, demo: Demo) -> None:
        """Remove what the demonstration created from a cluster that keeps running."""
        namespaces = self._client.resource("", "v1", "namespaces", namespaced=False)
        for _, name, resource in reversed(await self._cluster_wide(demo)):
            with suppress(NotFound):
                await resource.delete(name)
        try:
            with self._console.status(f"removing namespace {demo.namespace}"):
                await namespaces.delete(demo.namespace)
                async with asyncio.timeout(STATE_S_MAX):
                    while True:
                        await namespaces.get(demo.namespace)
                        await self._clock.sleep(_POLL_S)
        except NotFound:
            return
        except TimeoutError:
            raise DemoFailed(
                f"namespace {demo.namespace}: still there {STATE_S_MAX:g} s after it was deleted"
            ) from None

    async def _step(self, demo: Demo, step: Step) -> None:
        match step:
            case Say(text):
                if self._pause is not None:
                    self._pause()
                self._console.print()
                self._console.print(Text(text, style="bold"), soft_wrap=not self._console.record)
            case Show(kind, name):
                self._show(_object(demo, kind, name))
            case Run():
                await self._run(step)
            case Wait(pods, state):
                await self._wait(demo.namespace, pods, state)

    def _show(self, value: Mapping[str, Any]) -> None:
        for line in yaml_text(value).rstrip("\n").split("\n"):
            text = Text(f"  {line}")
            text.highlight_regex(r"[\w./-]+(?=:( |$))", "blue")
            self._console.print(text, soft_wrap=not self._console.record)

    async def _run(self, step: Run) -> None:
        for number, line in enumerate(step.command.rstrip("\n").split("\n")):
            prompt = "> " if number else "$ "
            self._console.print(Text.assemble((prompt, "dim"), (line, "cyan")), soft_wrap=not self._console.record)
        ran = await self._commands.run(step.command)
        if step.shows:
            ran = await self._until_it_shows(step, ran)
        elif step.command.startswith("kubectl logs"):
            ran = await self._until_it_says_something(step, ran)
        lines = ran.text.rstrip("\n").split("\n")
        first = next((number for number, line in enumerate(lines) if re.search(step.starts_at, line)), 0)
        if first:
            self._console.print(Text(_LEFT_OUT, style="dim"))
        last = first + step.lines_max if step.lines_max else len(lines)
        for line in lines[first:last]:
            self._console.print(_accented(line), soft_wrap=not self._console.record)
        if last < len(lines):
            self._console.print(Text(_LEFT_OUT, style="dim"))
        if ran.code != step.code:
            raise DemoFailed(f"{step.command}: ended with {ran.code}, expected {step.code}")

    async def _until_it_shows(self, step: Run, ran: Ran) -> Ran:
        """The object may not exist yet."""
        until = self._clock.monotonic() + STATE_S_MAX
        with self._console.status("waiting"):
            while not re.search(step.shows, ran.text, re.MULTILINE):
                if self._clock.monotonic() > until:
                    raise DemoFailed(
                        f"{step.command}: does not show {step.shows!r} after {STATE_S_MAX:g} s, but {ran.text[-_SHOWN_MAX:]!r}"
                    )
                await self._clock.sleep(_AGAIN_S)
                ran = await self._commands.run(step.command)
        return ran

    async def _until_it_says_something(self, step: Run, ran: Ran) -> Ran:
        """A running container may not have logged anything yet."""
        until = self._clock.monotonic() + _LOG_S_MAX
        while ran.code == 0 and not ran.text.strip() and self._clock.monotonic() < until:
            await self._clock.sleep(_POLL_S)
            ran = await self._commands.run(step.command)
        return ran

    async def _wait(self, namespace: str, names: Sequence[str], state: str) -> None:
        pods = self._client.resource("", "v1", "pods", namespaced=True)
        whom = names[0] if len(names) == 1 else f"{len(names)} pods"
        seen: dict[str, str] = {}
        try:
            with self._console.status(f"waiting for {whom}: {state}"):
                async with asyncio.timeout(STATE_S_MAX):
                    while True:
                        found = (await pods.list(namespace)).items
                        seen = {pod["metadata"]["name"]: _state(pod) for pod in found}
                        if all(seen.get(name, "Gone") == state for name in names):
                            return
                        await self._clock.sleep(_POLL_S)
        except TimeoutError:
            states = ", ".join(f"{name} {seen.get(name, 'Gone')}" for name in names)
            raise DemoFailed(
                f"{whom}: not {state} after {STATE_S_MAX:g} s: {states}",
                f"allot demo --keep keeps the cluster, so that you can run kubectl describe pod -n {namespace}",
            ) from None


def _state(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    phase: str = status.get("phase") or "Pending"
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    if phase == "Pending" and (conditions.get("PodScheduled") or {}).get("reason") == "Unschedulable":
        return "Unschedulable"
    return phase


def _object(demo: Demo, kind: str, name: str) -> Mapping[str, Any]:
    """The object without irrelevant fields."""
    found = next(each for each in _objects(demo) if each["kind"] == kind and each["metadata"]["name"] == name)
    return {"kind": kind, "metadata": {"name": name}, "spec": found["spec"]}


def manifests_of(demo: Demo) -> tuple[Path, ...]:
    """All files that a demonstration's commands may name."""
    if demo.document:
        return tuple(sorted((MANIFESTS / demo.name).glob("*.yaml")))
    return tuple(sorted(MANIFESTS.glob(f"{demo.name}*.yaml")))


def _objects(demo: Demo) -> list[Mapping[str, Any]]:
    files = manifests_of(demo) if demo.document else (MANIFESTS / f"{demo.name}.yaml",)
    return [document.value for file in files for document in documents(file.read_text())]


def _accented(line: str) -> Text:
    text = Text(line)
    for word, style in _ACCENTS.items():
        text.highlight_words([word], style)
    return text
