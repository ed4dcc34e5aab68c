"""Records find the log of the part that wrote them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from allot.controlplane.component_logs import API_SERVER, CONTROLLERS, PROCESS, SCHEDULER, ComponentLogs
from allot.controlplane.plane import running_component
from allot.process.clock import ManualClock


def record(name: str, text: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(name, level, "file.py", 1, text, None, None)


@pytest.mark.parametrize(
    ("logger", "task", "component"),
    [
        ("allot.scheduler", "", SCHEDULER),
        ("allot.apiserver.access.audit", "", API_SERVER),
        ("allot.controllers", "scheduler", CONTROLLERS),
        ("allot.client", "scheduler", SCHEDULER),
        ("allot.client", "resourceclaim-controller", CONTROLLERS),
        ("allot", "informers", API_SERVER),
        ("allot.process", "resourceclaim-controller", PROCESS),
        ("asyncio", "", PROCESS),
    ],
)
async def test_a_record_belongs_to_its_logger_or_to_the_task_that_ran(
    tmp_path: Path, logger: str, task: str, component: str
) -> None:
    shown: list[tuple[str, str]] = []
    logs = ComponentLogs(tmp_path, ManualClock(), lambda *line: shown.append(line))
    running_component.set(task)
    logs.emit(record(logger, "hello", logging.WARNING))
    assert shown == [(component, "W hello")]
    assert logs.one_log.read_text().endswith(f" [{component}] W hello\n")
    assert logs.path(component).exists()


async def test_what_children_say_has_their_name(tmp_path: Path) -> None:
    logs = ComponentLogs(tmp_path, ManualClock())
    logs.hear("etcd", "two\nlines")
    assert logs.path("etcd").read_text().count(" stderr F ") == 2
    assert logs.one_log.read_text().count(" [etcd] ") == 2
