"""Clusters as people start them: `allot up` with simulated nodes, and kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING, Kubectl, find_kubectls
from waiting import wait_for

# Whatever a machine has to do besides.
WAIT = "--timeout=60s"


@contextmanager
def cluster(*options: str) -> Iterator[Path]:
    """A cluster in memory; its kubeconfig. options: of `allot up`."""
    if not find_kubectls():
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="w-") as folder:
        environment = {**os.environ, "HOME": folder}

        def allot(command: str, *arguments: str) -> None:
            whole = [sys.executable, "-m", "allot", command, "--data-dir", f"{folder}/data", *arguments]
            done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr

        allot("up", "--detach", "--memory", "--port", "0", *options)
        try:
            yield Path(folder) / "data" / "admin.kubeconfig"
        finally:
            allot("down")


@contextmanager
def namespace(kubeconfig: Path, name: str) -> Iterator[Kubectl]:
    """The newest kubectl, in a namespace of its own."""
    made = Kubectl(next(iter(find_kubectls().values())), kubeconfig, kubeconfig.parent, name)
    made("create", "namespace", name)
    yield made
    made("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def until(look: Callable[[], Any]) -> Any:
    """What kubectl shows before long."""
    return wait_for("what kubectl shows", look)
