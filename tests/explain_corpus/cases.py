"""The failure cases in this folder, read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.times import seconds_of
from explain_corpus.simulation import Outlook, World

FOLDER = Path(__file__).resolve().parent


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one failure. The README says what the fields mean."""

    folder: str = ""
    source: str
    target: str
    cause: str
    names: tuple[str, ...]
    blocked: str
    fixable: bool
    namespace: str = "default"
    gates: tuple[str, ...] = ()
    untold_gates: tuple[str, ...] = ()
    now: str = "2026-09-14T09:00:00Z"
    refused: str = ""
    unhelpful: str = ""
    advice: str = ""
    then: str = ""
    placed: bool = False
    remedy: tuple[dict[str, Any], ...] = ()

    @property
    def is_simulated(self) -> bool:
        """Whether the scheduler's core can be asked what becomes of it: pods and gangs."""
        return self.target.partition("/")[0] in ("pod", "podgroup")

    @property
    def dump(self) -> Path:
        """The cluster."""
        return FOLDER / self.folder / "dump.yaml"

    def world(self) -> World:
        """The cluster, for simulations."""
        return World.read(self.dump, self._gates(), seconds_of(self.now))

    def _gates(self) -> FeatureGates:
        gates = DEFAULT_GATES
        for text in (*self.gates, *self.untold_gates):
            name, _, value = text.partition("=")
            gates = gates.changed(enable=(name,)) if value == "true" else gates.changed(disable=(name,))
        return gates

    def is_cured_in(self, outlook: Outlook) -> bool:
        """Whether the pod is placed, or waits only for what the case says has to happen then."""
        return outlook.schedulable or bool(self.then and re.search(self.then, outlook.told))

    def is_named_by(self, line: str) -> bool:
        """Whether the first line of an explanation names the cause."""
        return all(re.search(pattern, line, re.IGNORECASE) for pattern in self.names)


def all_cases() -> list[Case]:
    """Every case, in the order of their numbers."""
    found = []
    for file in sorted(FOLDER.glob("*/case.yaml"), key=lambda file: int(file.parent.name.partition("-")[0])):
        value = yaml.safe_load(file.read_text())
        found.append(msgspec.convert({**value, "folder": file.parent.name}, Case))
    return found
