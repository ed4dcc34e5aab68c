"""GKE's tutorials, played from their documents' own steps: each demonstration checks what its document says that can be seen, wrong turns included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allot.cli.demos.catalogue import demos
from allot.cli.demos.commands import missing_programs
from allot.cli.demos.script import Run
from e2e.kubectl import MISSING, find_kubectls

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TUTORIALS = [demo for demo in demos().values() if demo.document]
# Programs in sandboxes and a network of pods, which not every kernel allows.
NOT_HERE = "this machine allows no "


@pytest.mark.parametrize("name", [demo.name for demo in TUTORIALS])
def test_a_tutorial_does_what_its_document_says(name: str, tmp_path: Path) -> None:
    kubectls = find_kubectls()
    if not kubectls:
        pytest.skip(MISSING)
    missing = missing_programs(demos()[name])
    if missing:
        pytest.skip(f"no {', '.join(missing)} on the PATH")
    environment = {**os.environ, "NO_COLOR": "1", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "allot", "demo", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=280)
    if NOT_HERE in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "what to try next" in done.stdout


def test_every_tutorial_checks_what_can_be_seen() -> None:
    """A step that only runs would show nothing: most commands that look at something say what has to be there."""
    assert len(TUTORIALS) == 9
    for demo in TUTORIALS:
        looks = [step for step in demo.steps if isinstance(step, Run) and not step.command.startswith("kubectl apply")]
        assert sum(bool(step.shows) for step in looks) >= len(looks) / 2, demo.name
