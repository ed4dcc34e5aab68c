"""kubectl as the tests use it: one binary, one server, one namespace, every call counted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

MISSING = "no kubectl found on the PATH"
OLDEST, NEWEST = 29, 99
# Long enough for a busy machine; a call that takes longer hangs.
_TIMEOUT = 60


def find_kubectls() -> dict[str, Path]:
    """Versions to binaries, newest first: kubectl.1.NN files beside the real kubectl, else the one on the PATH."""
    found = shutil.which("kubectl")
    if found is None:
        return {}
    versions: dict[int, Path] = {}
    for path in Path(found).resolve().parent.glob("kubectl.1.*"):
        minor = re.fullmatch(r"kubectl\.1\.(\d+)", path.name)
        if minor and OLDEST <= int(minor[1]) <= NEWEST:
            versions[int(minor[1])] = path
    return {f"1.{minor}": versions[minor] for minor in sorted(versions, reverse=True)} or {"kubectl": Path(found)}


class Kubectl:
    """Calls kubectl and looks at how it ended."""

    def __init__(self, binary: Path, kubeconfig: Path, home: Path, namespace: str) -> None:
        """kubeconfig: whom to talk to; a copy of it names the namespace. home: a folder for caches and settings."""
        self.binary = binary
        self.home = home
        self.namespace = namespace
        self.kubeconfig = home / f"kubeconfig-{namespace}"
        self.calls = 0
        config = yaml.safe_load(kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = namespace
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(config))

    @property
    def minor(self) -> int:
        """The minor version of this kubectl."""
        return int(self.binary.name.rpartition(".")[2])

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line."""
        return [str(self.binary), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """The environment: a home of its own, so that caches and settings of the user play no part."""
        own = {"HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)}
        return {"PATH": os.environ["PATH"], "GOGC": os.environ.get("GOGC", ""), **own, **more}

    def run(
        self, *arguments: str, stdin: str | None = None, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One call, whatever its result."""
        self.calls += 1
        return subprocess.run(
            self.command(arguments),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            cwd=self.home,
            env=self.environment(**(environment or {})),
            check=False,
        )

    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str) -> str:
        """What a call that succeeds prints."""
        result = self.run(*arguments, stdin=stdin, environment=environment)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}{result.stdout}"
        return result.stdout

    def fails(self, *arguments: str, stdin: str | None = None, code: int = 1) -> str:
        """What a call that is refused prints on stderr."""
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == code, f"kubectl {' '.join(arguments)}: {result.returncode} {result.stdout}"
        return result.stderr

    def warns(self, *arguments: str, stdin: str | None = None) -> str:
        """What a call that succeeds prints on stderr."""
        result = self.run(*arguments, stdin=stdin)
        assert result.returncode == 0, f"kubectl {' '.join(arguments)}: {result.stderr}"
        return result.stderr

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        """What a call prints with -o json."""
        return json.loads(self(*arguments, "-o", "json", stdin=stdin))

    def rows(self, *arguments: str) -> list[list[str]]:
        """The cells of a table, header first; cells are two or more spaces apart."""
        return [re.split(r"\s{2,}", line.strip()) for line in self(*arguments).splitlines()]

    def apply(self, manifest: str, *arguments: str) -> str:
        """kubectl apply -f -."""
        return self("apply", *arguments, "-f", "-", stdin=manifest)
