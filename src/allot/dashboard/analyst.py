"""The process that answers slow questions from a copy of the cluster.

Started by `analysis`, which sends changes before each question. A failing question gets the error as its answer, and the next one
uses a rebuilt cluster.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

import msgspec

from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import Key, Outgrown, WhatIfCluster, key_of
from allot.core.model.meta import APIStruct
from allot.dashboard.frames import read_message, write_answer
from allot.dashboard.questions import NO_MACHINES, BadQuestion, Machines, answer
from allot.process.interpreter import tune
from allot.process.supervise import result_or_none

_FAILED = "the question could not be answered; the log of the dashboard says why"


class Analyst:
    """Keeps the objects, and the cluster built from them."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._objects: dict[Key, APIStruct] = {}
        self._unread: Any = {}
        self._what_if: WhatIfCluster | None = None

    def take(self, message: tuple[Any, ...]) -> bytes | None:
        """Handle a message; returns the answer to a question."""
        kind, *rest = message
        if kind == "objects":
            self._objects.update((key_of(object_), object_) for object_ in rest[0])
            return None
        if kind == "unread":
            (self._unread,) = rest
            return None
        if kind == "changes":
            for before, after in rest[0]:
                self._follow(before, after)
            return None
        assert kind == "ask", f"unknown message {kind!r}"
        now, name, arguments = rest
        return self._answered(now, name, arguments)

    def _follow(self, before: APIStruct | None, after: APIStruct | None) -> None:
        if after is not None:
            self._objects[key_of(after)] = after
        elif before is not None:
            self._objects.pop(key_of(before), None)
        if self._what_if is not None:
            try:
                self._what_if.follow(before, after)
            except Outgrown:
                self._what_if = None

    def _answered(self, now: float | None, name: str, arguments: dict[str, str]) -> bytes:
        if self._what_if is None:
            self._what_if = WhatIfCluster(Snapshot(tuple(self._objects.values()), now, self._unread))
        what_if = self._what_if
        if now is not None:
            what_if.pass_to(now)
        found = result_or_none(f"question {name}", lambda: self._asked(what_if, name, arguments))
        if found is None:
            # An attempted change may not have been reverted.
            self._what_if = None
            found = {"error": _FAILED}
        return msgspec.json.encode(found)

    def _asked(self, what_if: WhatIfCluster, name: str, arguments: dict[str, str]) -> Any:
        try:
            return {"answer": answer(what_if, name, arguments, self._machines)}
        except BadQuestion as error:
            return {"error": str(error)}


def serve(messages: IO[bytes], answers: IO[bytes], machines: Machines) -> None:
    """Until there are no more messages."""
    analyst = Analyst(machines)
    while True:
        try:
            message = read_message(messages)
        except EOFError:
            return
        found = analyst.take(message)
        if found is not None:
            write_answer(answers, found)


def main(machines: Machines = NO_MACHINES) -> None:
    """Reads questions from stdin and writes answers to stdout; other output goes to stderr. machines: that could be added."""
    tune()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(sys.stdin.buffer, answers, machines)
    except BrokenPipeError:
        return


if __name__ == "__main__":
    main()
