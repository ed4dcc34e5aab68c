"""Parts of an example driver as processes beside a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from node.cluster import Cluster
from waiting import WAIT_S, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples" / "drivers"


class Part:
    """One of them. name: what the example calls it."""

    def __init__(self, cluster: Cluster, example: str, name: str, *arguments: str) -> None:
        self.log = cluster.folder / f"example-{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(EXAMPLES / example), name, *arguments], stdout=log, stderr=log
            )
        try:
            wait_for(f"{name} of {example}", self._is_ready)
        except BaseException:
            self.kill()
            raise

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return " ready" in self.log.read_text()

    def kill(self) -> None:
        """End it without a chance to clear up."""
        self._process.kill()
        self._process.wait(WAIT_S)
