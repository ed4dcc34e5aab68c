"""The logs of a cluster's components in one process group: a file for each component, and one combined log.

A record belongs to the component whose code wrote it, by logger name; for shared code (clients, supervision), to
the component whose task ran it. Output of a child process belongs to the child. The file of a component is the log of its pod in kube-system.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from allot.controlplane.components import SCHEDULER_NAME
from allot.controlplane.plane import running_component
from allot.process.clock import Clock
from allot.process.log_files import ContainerLog, LogFile, text_of

API_SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
COMPONENTS = (API_SERVER, CONTROLLERS, SCHEDULER)
# The process itself: what it starts and stops.
PROCESS = "allot"

_BY_LOGGER = {
    "allot.apiserver": API_SERVER,
    "allot.store": API_SERVER,
    "allot.controllers": CONTROLLERS,
    "allot.scheduler": SCHEDULER,
    "allot.process": PROCESS,
}
# Tasks of a control plane that are not controllers.
_BY_TASK = {"": PROCESS, SCHEDULER_NAME: SCHEDULER, "informers": API_SERVER}


class ComponentLogs(logging.Handler):
    """Receives the records of this process and the lines of children. shows: also receives each line of the combined log, with
    its component.
    """

    def __init__(self, folder: Path, clock: Clock, shows: Callable[[str, str], None] = lambda *_: None) -> None:
        super().__init__(logging.INFO)
        self.folder = folder
        self._clock = clock
        self._shows = shows
        self._files: dict[str, ContainerLog] = {}
        self._all = LogFile(folder / f"{PROCESS}.log")

    @property
    def one_log(self) -> Path:
        """The path of the combined log."""
        return self._all.path

    def path(self, component: str) -> Path:
        """The path of a component's log."""
        return self.folder / f"{component}.log"

    def install(self) -> None:
        """Become the log of this process."""
        logging.basicConfig(level=logging.WARNING, handlers=[self], force=True)
        for name in _BY_LOGGER:
            logging.getLogger(name).setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """For `logging`."""
        self.hear(_component_of(record), text_of(record))

    def hear(self, component: str, text: str) -> None:
        """Write lines of a component. A full disk must not stop the component."""
        time = self._clock.now_micro()
        try:
            if component != PROCESS:
                self._file(component).write_entry(time, text)
            for line in text.split("\n"):
                self._all.write(f"{time} [{component}] {line}")
        except OSError as error:
            self._shows(PROCESS, f"E cannot log: {error}")
        for line in text.split("\n"):
            self._shows(component, line)

    def _file(self, component: str) -> ContainerLog:
        file = self._files.get(component)
        if file is None:
            file = self._files[component] = ContainerLog(self.path(component))
        return file


def _component_of(record: logging.LogRecord) -> str:
    name = record.name
    while name:
        if name in _BY_LOGGER:
            return _BY_LOGGER[name]
        name = name.rpartition(".")[0]
    return component_of_task(running_component.get())


def component_of_task(name: str) -> str:
    """The component that a task of a control plane belongs to."""
    return _BY_TASK.get(name, CONTROLLERS)
