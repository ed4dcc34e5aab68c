"""Remedies as commands to copy. The dashboard is read-only and runs none of them."""

from __future__ import annotations

import shlex

import msgspec

from allot.core.advice.explain.report import Change
from allot.core.advice.patches import Patch


def command_of(change: Change) -> str:
    """The command for the change; empty if there is none, or nothing to do."""
    if change.waits:
        return ""
    commands = [_command(patch) for patch in change.patches]
    return " && ".join(commands) if commands and all(commands) else ""


def _command(patch: Patch) -> str:
    words = ["kubectl", "-n", patch.namespace] if patch.namespace else ["kubectl"]
    if patch.action == "delete":
        return shlex.join([*words, "delete", patch.kind.lower(), patch.name])
    if patch.action == "patch" and not patch.recreate:
        operations = msgspec.json.encode(patch.patch).decode()
        return shlex.join([*words, "patch", patch.kind.lower(), patch.name, "--type=json", "-p", operations])
    # Recreating an object, or changing a feature gate, takes more than one line.
    return ""
