"""`python -m release.smoke FOLDER`: does what `make dist` built work in an empty environment, without the repository?

The wheel is installed with exactly the packages of its lock file; then commands run that need a good part of it: answers from text, the
manifests, the classes of a driver, and a whole cluster on this machine that is started, asked and stopped. The source distribution has to
build the same wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

_TIMEOUT_S = 300
_CLAIM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
"""


class Broken(Exception):
    """Something does not work."""


class Environment:
    """An environment with the wheel in it, and a home without anything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs = folder / "venv" / "bin"
        self._variables = {
            "PATH": f"{self._programs}:{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "KUBECONFIG": str(folder / "kubeconfig"),
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        }

    def install(self, wheel: Path) -> None:
        """The wheel and the packages of its lock file, with their hashes checked."""
        venv.create(self._folder / "venv", with_pip=True)
        with zipfile.ZipFile(wheel) as packed:
            lock = self._folder / "requirements.txt"
            lock.write_bytes(packed.read("allot/requirements.txt"))
        pip = ("python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        self.run(*pip, "--require-hashes", "--requirement", str(lock))
        self.run(*pip, "--no-index", "--no-deps", str(wheel))
        self.run("python", "-m", "pip", "check")

    def run(self, *command: str, given: str = "") -> str:
        """What a program prints. Broken if it fails."""
        program = str(self._programs / command[0])
        done = subprocess.run(
            [program, *command[1:]],
            input=given,
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=self._variables,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise Broken(
                f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.stdout

    def expect(self, text: str, *command: str, given: str = "") -> None:
        """Broken unless a program prints a text."""
        printed = self.run(*command, given=given)
        if text not in printed:
            raise Broken(f"{' '.join(command)}: expected {text!r} in\n{printed[-2000:]}")


def check_commands(environment: Environment, version: str) -> None:
    """Commands that need a good part of the package and its data."""
    environment.expect(f"allot {version}", "allot", "--version")
    environment.expect("gpu.nvidia.com", "python", "-m", "allot.devices.gpu", "classes")
    environment.expect("kind: DaemonSet", "allot", "install", "drivers", "gpu", "--dry-run")
    environment.expect("kind: CustomResourceDefinition", "allot", "install", "crds", "--print")
    environment.run("allot", "validate", "-", given=_CLAIM)
    try:
        environment.run("allot", "up", "--detach", "--node", "t4", "--port", "0", "--kubeconfig", "kubeconfig")
        environment.expect("gpu-0", "allot", "get", "devices")
    finally:
        environment.run("allot", "down")


def check_source(source: Path, wheel: Path, folder: Path) -> None:
    """The source distribution builds a wheel with the same files."""
    built = folder / "built"
    # This environment has what builds; the sources are outside of the repository.
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    done = subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", str(built), str(source)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise Broken(f"{source.name} cannot be built: {done.stderr[-2000:]}")
    (other,) = built.iterdir()
    if contents(other) != contents(wheel):
        raise Broken(f"{source.name} builds another wheel: {sorted(contents(other) ^ contents(wheel))[:10]}")


def contents(wheel: Path) -> set[tuple[str, int]]:
    """Names and checksums of the files in a wheel."""
    with zipfile.ZipFile(wheel) as packed:
        return {(each.filename, each.CRC) for each in packed.infolist()}


def main(arguments: Sequence[str]) -> int:
    """Check a folder; the exit code."""
    folder = Path(arguments[0] if arguments else "dist").absolute()
    (wheel,) = folder.glob("*.whl")
    (source,) = folder.glob("*.tar.gz")
    version = wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory(prefix="allot-smoke-") as name:
        place = Path(name)
        environment = Environment(place)
        try:
            environment.install(wheel)
            check_commands(environment, version)
            check_source(source, wheel, place)
        except Broken as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    sys.stdout.write(f"{wheel.name} and {source.name} work without the repository\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
