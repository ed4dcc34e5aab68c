"""Demonstrations are played for real: a cluster of their own, with simulated hardware."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from allot.cli.demos.catalogue import demos
from allot.cli.demos.script import Demo, Run, Show
from allot.cli.demos.stage import manifests_of
from allot.cli.main import run
from allot.devices.catalogue import find_profile

NAMES = list(demos())
# These depend on how much there is; the others can be played on one cluster that has everything.
ALONE = ("one-gpu", "mig", "gang", "topology")
# Played by tests/e2e/test_queues.py, which goes on where it ends, and by tests/e2e/test_tutorials.py.
ELSEWHERE = ("queues", *(demo.name for demo in demos().values() if demo.document))
NODES = {
    "nodes": [
        {"name": "gpus", "profile": "a3-ultragpu-8g", "drivers": {"cpu": {}}},
        {"name": "tpus", "profile": "ct6e-standard-4t"},
    ]
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster that has something for everybody."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "nodes.yaml").write_text(yaml.safe_dump(NODES))

    def allot(*arguments: str) -> None:
        command = [sys.executable, "-m", "allot", *arguments, "--data-dir", "data"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=180)

    allot("up", "--detach", "--port", "0", "--node", "nodes.yaml", "--kubeconfig", "kubeconfig")
    try:
        yield folder / "kubeconfig"
    finally:
        allot("down")


def play(name: str, tmp_path: Path, *options: str, path: str | None = None) -> str:
    environment = {**os.environ, "NO_COLOR": "1", "TMPDIR": str(tmp_path)}
    if path is not None:
        environment["PATH"] = path
    command = [sys.executable, "-m", "allot", "demo", name, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("allot-demo-*")), "the demonstration cleans up"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_a_demonstration_plays_to_its_end_on_a_cluster_of_its_own(name: str, tmp_path: Path) -> None:
    assert "what to try next" in play(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ALONE + ELSEWHERE])
def test_a_demonstration_plays_to_its_end_on_a_cluster_that_is_there(name: str, tmp_path: Path, cluster: Path) -> None:
    assert "what to try next" in play(name, tmp_path, "--kubeconfig", str(cluster))


@pytest.mark.slow
def test_a_namespace_of_others_is_left_alone(tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "namespace.yaml"
    manifest.write_text("{apiVersion: v1, kind: Namespace, metadata: {name: gang}}")
    assert run(["apply", "-f", str(manifest), "--kubeconfig", str(cluster)]) == 0
    assert run(["demo", "gang", "--kubeconfig", str(cluster)]) == 1
    assert "namespace gang: already exists" in capsys.readouterr().err


@pytest.mark.slow
def test_without_kubectl_the_same_is_shown_by_our_own_client(tmp_path: Path) -> None:
    others = tmp_path / "bin"
    others.mkdir()
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(folder).glob("*"):
            if not program.name.startswith("kubectl"):
                (others / program.name).unlink(missing_ok=True)
                (others / program.name).symlink_to(program)
    shown = play("one-gpu", tmp_path, path=str(others))
    assert "kubectl is not installed" in shown
    assert "GPU 0: Tesla T4" in shown
    assert (
        "pod2 is pending because the only device of class gpu.nvidia.com (gpu-0 on node gpu-node) is in use by pod gpu-test1/pod1"
        in shown
    )


@pytest.mark.slow
def test_a_demonstration_can_be_recorded_as_a_picture(tmp_path: Path, cluster: Path) -> None:
    picture = tmp_path / "demo.svg"
    play("tpu", tmp_path, "--record", str(picture), "--kubeconfig", str(cluster))
    assert "TPU" in picture.read_text()
    assert str(tmp_path) not in picture.read_text()


def test_the_list_has_every_demonstration(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == NAMES


def test_an_unknown_demonstration_names_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "juggling"]) == 2
    assert "expected one of one-gpu" in capsys.readouterr().err


@pytest.mark.parametrize("demo", demos().values(), ids=NAMES)
def test_a_demonstration_names_nodes_files_and_objects_that_there_are(demo: Demo) -> None:
    for node in demo.nodes:
        assert find_profile(str(node["profile"]))
    for pool in demo.pools:
        assert find_profile(str(pool["machine"]))
    files = {path.name: path for path in manifests_of(demo)}
    documents = [each for path in files.values() for each in yaml.safe_load_all(path.read_text())]
    for step in demo.steps:
        if isinstance(step, Run):
            assert all(word in files for word in step.command.split() if word.endswith(".yaml"))
        elif isinstance(step, Show):
            assert (step.kind, step.name) in [(each["kind"], each["metadata"]["name"]) for each in documents]


def test_a_tutorial_is_not_played_on_a_cluster_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    assert run(["demo", "gke-mps", "--kubeconfig", str(kubeconfig)]) == 2
    assert "uses the namespace default" in capsys.readouterr().err


def test_a_tutorial_names_the_programs_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["demo", "gke-mps"]) == 2
    assert "needs bash and kubectl and curl" in capsys.readouterr().err
