"""What containers find in the place of images."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from allot.node.runtimes import stand_ins
from allot.node.runtimes.port import ContainerSpec, PodName
from allot.node.runtimes.stand_ins import command_of, programs_of, repository_of, with_stand_in

POD = PodName(uid="u", namespace="default", name="p")
FOLDER = Path(stand_ins.__file__).parent


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("vllm/vllm-openai:v0.21.0", "vllm/vllm-openai"),
        ("docker.io/vllm/vllm-openai", "vllm/vllm-openai"),
        ("localhost:5000/nvidia/cuda:12.6.0-devel-ubuntu22.04@sha256:00", "nvidia/cuda"),
        ("ubuntu", "ubuntu"),
        ("localhost/x:1", "x"),
        ("", ""),
    ],
)
def test_an_image_is_known_by_its_repository(image: str, repository: str) -> None:
    assert repository_of(image) == repository


def test_a_container_has_the_stand_in_of_its_image_first() -> None:
    plain = ContainerSpec(pod=POD, name="c", image="ubuntu:22.04", command=("sh",))
    assert with_stand_in(plain, "/bin") is plain
    made = with_stand_in(ContainerSpec(pod=POD, name="c", image="nvidia/cuda:12", command=("sh",)), "/usr/bin:/bin")
    assert made.environment["PATH"] == "/run/stand-in/bin:/usr/bin:/bin"
    assert [(each.container_path, each.read_only) for each in made.mounts] == [("/run/stand-in", True)]
    modules = {"PYTHONPATH": "/own"}
    made = with_stand_in(ContainerSpec(pod=POD, name="c", image="vllm/vllm-tpu", environment=modules), "/bin")
    assert made.environment["PYTHONPATH"] == "/run/stand-in/python:/own" and "PATH" not in made.environment
    assert made.command == (), "an image without a known entrypoint stays a placeholder"
    assert command_of((), "r.example.com/p/vllm-gemma4-gpu:latest")[:2] == ("python3", "-m")
    assert command_of(("own",), "r.example.com/p/vllm-gemma4-gpu:latest") == ("own",)
    assert command_of((), "ubuntu") == ()


def test_programs_of_stand_ins_can_be_started() -> None:
    assert set(programs_of("nvidia/cuda:12")) == {"apt-get", "cmake", "git", "ib_write_lat", "make"}
    programs = [*FOLDER.glob("*/bin/*"), FOLDER / "cuda/lib/nvbandwidth"]
    assert all(each.stat().st_mode & 0o111 == 0o111 for each in programs)


# --- vLLM ---

SERVER = FOLDER / "vllm/python/vllm/entrypoints/openai/api_server.py"


@contextmanager
def server(cards: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """vLLM's stand-in, and what it says until it serves or ends."""
    command = [sys.executable, str(SERVER), *options]
    programs = Path(__file__).parents[3] / "src/allot/devices/gpu/container_programs"
    own = {"PATH": f"{programs}:/usr/bin:/bin", "SIMULATED_GPUS": str(cards), **environment}
    # As a container it would be alone: what holds the memory ends with it.
    with subprocess.Popen(
        command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.rstrip("\n"))
            if "startup complete" in line:
                break
        try:
            yield process, said
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def card(folder: Path, name: str, memory_mib: int) -> None:
    (folder / name / "memory").mkdir(parents=True)
    facts = f"name='NVIDIA A100'\nuuid=GPU-{name}\nmemory_total={memory_mib}\nlost=''\n"
    (folder / name / "info").write_text(facts)


def post(url: str, body: bytes) -> tuple[int, dict[str, object]]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.slow
def test_vllm_takes_its_part_of_the_memory_and_answers(tmp_path: Path) -> None:
    card(tmp_path, "000-gpu-0", 40960)
    options = ("--host=127.0.0.1", "--port=0", "--model=m", "--gpu-memory-utilization=0.42", "--max-model-len=1")
    with server(tmp_path, *options) as (_, said):
        assert "model m on cuda, 1 x NVIDIA A100" in "\n".join(said)
        taken = [
            each.read_text().split()[1] for each in (tmp_path / "000-gpu-0/memory").iterdir() if each.name[0] != "."
        ]
        assert taken == ["17203"]
        (address,) = [line.rpartition(" ")[2] for line in said if "Starting vLLM API server on" in line]
        url = f"{address}/v1/completions"
        code, answer = post(url, b'{"model": "m", "prompt": "x"}')
        assert code == 200 and "no model was run" in str(answer)
        assert post(url, b'{"model": "other"}')[0] == 404
        assert post(url, b"not json")[0] == 400
        assert post(url, b"[]")[0] == 400
        assert post(f"{address}/other", b"{}")[0] == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tensor-parallel-size=2",), "World size (2) is larger than the number of available GPUs (1)"),
        (("--gpu-memory-utilization=1.5",), "torch.OutOfMemoryError: CUDA out of memory"),
    ],
)
def test_vllm_ends_where_the_real_one_would(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    card(tmp_path, "000-gpu-0", 40960)
    with server(tmp_path, *options) as (process, said):
        assert problem in "\n".join(said)
        assert process.wait(30) == 1


@pytest.mark.slow
def test_vllm_without_a_device_does_not_start(tmp_path: Path) -> None:
    with server(tmp_path) as (process, said):
        assert "Failed to infer device type" in "\n".join(said)
        assert process.wait(30) == 1
