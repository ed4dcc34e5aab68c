"""Runs the commands of a demonstration: with kubectl, or with allot's client if kubectl is not installed. Commands of documents are lines
for a shell, which needs the programs that the documents use."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from allot.cli.demos.script import Demo
from allot.client.api import Client
from allot.client.errors import ApiError

_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_COMMAND_S_MAX = 120.0
_OF_DOCUMENTS = ("bash", "kubectl", "curl")
# The running `allot`, whatever else is on the PATH.
_ALLOT = 'allot() { "$ALLOT_PYTHON" -m allot "$@"; }\n'


def missing_programs(demo: Demo) -> tuple[str, ...]:
    """This machine lacks something that a demonstration needs."""
    needed = (*_OF_DOCUMENTS, *demo.needs) if demo.document else ()
    return tuple(each for each in needed if shutil.which(each) is None)


class Ran(msgspec.Struct, frozen=True):
    """How a command ended, and what it printed."""

    code: int
    text: str


class Commands:
    """Runs commands in a folder, on the cluster of a kubeconfig."""

    def __init__(self, demo: Demo, folder: Path, kubeconfig: Path, client: Client) -> None:
        self._demo = demo
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._client = client
        self.has_kubectl = shutil.which("kubectl") is not None

    async def run(self, line: str) -> Ran:
        """Any command of a demonstration."""
        if self._demo.document:
            return await self._process("bash", "-c", _ALLOT + line)
        program, *arguments = shlex.split(line)
        if program == "allot":
            return await self._process(sys.executable, "-m", "allot", *arguments)
        assert program == "kubectl", f"{line}: a demonstration runs allot and kubectl"
        if self.has_kubectl:
            return await self._process("kubectl", *arguments)
        try:
            return await self._instead_of_kubectl(arguments)
        except ApiError as error:
            return Ran(1, f"error: {error.message}")

    async def _process(self, *command: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self._folder,
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_COMMAND_S_MAX):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return Ran(124, f"error: no answer within {_COMMAND_S_MAX:g} s")
        return Ran(process.returncode or 0, output.decode(errors="replace"))

    def _environment(self) -> Mapping[str, str]:
        own = {"KUBECONFIG": str(self._kubeconfig), "NO_COLOR": "1", "COLUMNS": "110", "ALLOT_PYTHON": sys.executable}
        return {**os.environ, **own, **self._demo.environment}

    async def _instead_of_kubectl(self, arguments: list[str]) -> Ran:
        """The few kubectl commands that demonstrations use: apply -f, get, delete pod, logs."""
        verb, rest = arguments[0], arguments[1:]
        options = {name: rest.pop(rest.index(name) + 1) for name in ("-n", "-c", "-f") if name in rest}
        words = [word for word in rest if not word.startswith("-")]
        if verb == "apply":
            return await self._process(sys.executable, "-m", "allot", "apply", "-f", options["-f"])
        namespace = options.get("-n", "default")
        if verb == "get":
            tables = [await self._table(name, namespace) for name in words[0].split(",")]
            return Ran(0, "\n".join(tables))
        pods = self._client.resource("", "v1", "pods", namespaced=True)
        if verb == "delete":
            await pods.delete(words[1], namespace)
            return Ran(0, f'pod "{words[1]}" deleted\n')
        assert verb == "logs", f"kubectl {verb}: expected apply, get, delete or logs"
        query = {"container": options["-c"]} if "-c" in options else {}
        answer = await self._client.request("GET", pods.path(namespace, words[0], "log"), query)
        return Ran(0, answer.body.decode(errors="replace"))

    async def _table(self, name: str, namespace: str) -> str:
        resource = await self._client.of_name(name)
        path = resource.path(namespace if resource.is_namespaced else "")
        answer = await self._client.request("GET", path, headers={"Accept": _TABLE})
        table: dict[str, Any] = answer.body
        shown = [index for index, column in enumerate(table["columnDefinitions"]) if not column.get("priority")]
        header = [table["columnDefinitions"][index]["name"].upper() for index in shown]
        rows = [[str(row["cells"][index]) for index in shown] for row in table.get("rows") or ()]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = (
            "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (header, *rows)
        )
        return "\n".join(lines) + "\n"
