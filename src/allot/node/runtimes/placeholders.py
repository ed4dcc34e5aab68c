"""Placeholders: containers that exist only in memory, configured by annotations of their pod."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allot.node.runtimes.port import Container, ContainerSpec, RuntimeFailure, State
from allot.process.clock import rfc3339

RUN_SECONDS = "allot.dev/run-seconds"
EXIT_CODE = "allot.dev/exit-code"
_RUN_SECONDS_MAX = 10 * 365 * 86400.0
_EXIT_CODE_MAX = 255


class Course(msgspec.Struct, frozen=True):
    """The course of a placeholder: how long it runs (None: until it is stopped), and how it ends."""

    run_seconds: float | None = None
    exit_code: int = 0


def course_of(annotations: Mapping[str, str]) -> Course | None:
    """What a pod's annotations define for its containers; None if nothing. RuntimeFailure names what is wrong."""
    seconds, code = annotations.get(RUN_SECONDS), annotations.get(EXIT_CODE)
    if seconds is None and code is None:
        return None
    return Course(0.0 if seconds is None else _seconds(seconds), 0 if code is None else _code(code))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _RUN_SECONDS_MAX:
        expected = f"expected a number of seconds from 0 to {_RUN_SECONDS_MAX:.0f}"
        raise RuntimeFailure("CreateContainerConfigError", f'annotation {RUN_SECONDS}: "{text[:80]}": {expected}')
    return value


def _code(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= _EXIT_CODE_MAX):
        expected = f"expected a whole number from 0 to {_EXIT_CODE_MAX}"
        raise RuntimeFailure("CreateContainerConfigError", f'annotation {EXIT_CODE}: "{text[:80]}": {expected}')
    return int(text)


class Placeholder:
    """A container that is only an entry in memory."""

    __slots__ = (
        "body",
        "course",
        "created_at",
        "ends_at",
        "exit_code",
        "id",
        "log",
        "sandbox_id",
        "spec",
        "started_at",
        "text",
    )

    def __init__(self, id_: str, sandbox_id: str, spec: ContainerSpec, course: Course, text: str, now: float) -> None:
        self.id = id_
        self.sandbox_id = sandbox_id
        self.spec = spec
        self.course = course
        self.text = text
        self.created_at = now
        self.started_at = 0.0
        self.ends_at = math.inf
        self.exit_code = course.exit_code
        self.log: Path | None = None
        # The container in which programs run, created for the first one.
        self.body = ""

    def is_running(self, now: float) -> bool:
        return self.started_at > 0 and now < self.ends_at

    def described(self, now: float) -> Container:
        state, code = State.CREATED, 0
        if self.started_at:
            state = State.RUNNING if now < self.ends_at else State.EXITED
        if state == State.EXITED:
            code = self.exit_code
        return Container(
            id=self.id,
            sandbox_id=self.sandbox_id,
            pod=self.spec.pod,
            name=self.spec.name,
            attempt=self.spec.attempt,
            state=state,
            image=self.spec.image,
            image_id=self.spec.image_id,
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.ends_at if state == State.EXITED else 0.0,
            exit_code=code,
            reason="" if state != State.EXITED else "Completed" if code == 0 else "Error",
            annotations=self.spec.annotations,
        )


def text_of(spec: ContainerSpec, course: Course, why: str) -> str:
    """What a placeholder says about itself."""
    end = "runs until it is stopped"
    if course.run_seconds is not None:
        end = f"runs {course.run_seconds:g} s and ends with {course.exit_code}"
    reason = why or "the pod's annotations ask for it"
    return f'Placeholder for image "{spec.image}": {reason}; it {end}'


def write_log(made: Placeholder) -> None:
    if made.log is None:
        return
    try:
        made.log.parent.mkdir(parents=True, exist_ok=True)
        with made.log.open("a") as file:
            file.write(f"{rfc3339(int(made.started_at))[:-1]}.000000000Z stdout F {made.text}\n")
    except OSError as error:
        raise RuntimeFailure("RunContainerError", f"log {made.log}: {(error.strerror or str(error)).lower()}") from None
