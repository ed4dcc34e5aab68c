"""Stands in for vLLM's server in containers of simulated nodes: allocates as much memory on the container's devices as vLLM would, and answers
vLLM's API. No model is loaded, and every answer says so.

Runs on the machine's Python, with only its standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CARDS = Path(os.environ.get("SIMULATED_GPUS", "/run/nvidia-simulated"))
BODY_BYTES_MAX = 1024 * 1024
# Practically forever.
HOLD_S = 10**9


def say(text: str) -> None:
    """Log as vLLM's front end does."""
    sys.stdout.write(f"(APIServer pid={os.getpid()}) {text}\n")
    sys.stdout.flush()


def fail(text: str) -> None:
    """Report that the engine could not be started."""
    sys.stdout.write(f"(EngineCore pid={os.getpid()}) {text}\n")
    say("RuntimeError: Engine core initialization failed. See root cause above.")
    sys.exit(1)


# --- devices ---


class Card:
    """A GPU or MIG instance of the container."""

    def __init__(self, folder: Path) -> None:
        lines = (shlex.split(line)[0].partition("=") for line in (folder / "info").read_text().splitlines())
        facts = {key: value for key, _, value in lines}
        self.name = facts["name"]
        self.memory_mib = int(facts.get("mig_memory") or facts["memory_total"])
        if facts.get("mig_profile"):
            self.name += f" MIG {facts['mig_profile']}"


def cards() -> list[Card]:
    """In CUDA's order."""
    return [Card(each) for each in sorted(CARDS.glob("*")) if (each / "info").exists()]


def take_memory(found: list[Card], share: float) -> None:
    """Allocate memory on each card, as vLLM does before it serves: a share of the card's total, whatever limits apply."""
    for index, card in enumerate(found):
        mib = int(card.memory_mib * share)
        holder = subprocess.Popen(
            ["gpu-memory", f"{mib}Mi", "--gpu", str(index), "--hold", str(HOLD_S)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert holder.stdout is not None
        said = holder.stdout.readline().strip()
        if not said.startswith("allocated"):
            fail(
                f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {mib / 1024:.2f} GiB, "
                f"{share:g} of GPU {index} with {card.memory_mib / 1024:.2f} GiB: {said}"
            )


def device_text(options: argparse.Namespace) -> str:
    """Allocate memory; returns what the server runs on, for display."""
    found = cards()
    size = options.tensor_parallel_size
    if found:
        if size > len(found):
            fail(f"ValueError: World size ({size}) is larger than the number of available GPUs ({len(found)})")
        take_memory(found[:size], options.gpu_memory_utilization)
        return f"cuda, {size} x {found[0].name}"
    if os.environ.get("TPU_ACCELERATOR_TYPE"):
        return f"tpu, {os.environ['TPU_ACCELERATOR_TYPE']}"
    processors = next((value for key, value in os.environ.items() if key.startswith("DRA_CPUSET_")), "")
    if processors:
        return f"cpu, processors {processors}"
    fail("RuntimeError: Failed to infer device type")
    raise AssertionError("it has ended")


# --- answers ---


class Handler(BaseHTTPRequestHandler):
    """vLLM's API, as far as clients use it."""

    protocol_version = "HTTP/1.1"
    model = ""
    device = ""

    def do_GET(self) -> None:
        """Health and models."""
        if self.path == "/health":
            self._answer(200, None)
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": self.model, "object": "model", "owned_by": "vllm"}]})
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Completions."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            self._refuse(413, f"expected a body of at most {BODY_BYTES_MAX} bytes")
            return
        body = self.rfile.read(int(length))
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self._answer(404, {"detail": "Not Found"})
            return
        try:
            asked = json.loads(body)
        except (ValueError, RecursionError) as error:
            self._refuse(400, f"the body is not JSON: {error}")
            return
        if not isinstance(asked, dict):
            self._refuse(400, "the body is not a JSON object")
        elif asked.get("model", self.model) != self.model:
            self._refuse(404, f"The model `{asked.get('model')}` does not exist.")
        else:
            self._complete()

    def _complete(self) -> None:
        text = f"Simulated: no model was run. This is {os.uname().nodename} on {self.device}."
        is_chat = self.path.endswith("/chat/completions")
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        self._answer(
            200,
            {
                "id": f"cmpl-{time.monotonic_ns():x}",
                "object": "chat.completion" if is_chat else "text_completion",
                "created": int(time.time()),
                "model": self.model,
                "choices": [choice],
            },
        )

    def _refuse(self, code: int, text: str) -> None:
        self._answer(code, {"error": {"message": text, "type": "BadRequestError", "code": code}})

    def _answer(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode() if value is not None else b""
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002 - the base's signature
        """As uvicorn does."""
        reason = self.responses.get(int(code), ("",))[0] if str(code).isdigit() else ""
        host, port = self.client_address[:2]
        say(f'INFO:     {host}:{port} - "{self.requestline}" {code} {reason}')

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing else is logged."""


def parse_options() -> argparse.Namespace:
    """Parse the options that matter here; vLLM's others are accepted."""
    parser = argparse.ArgumentParser(prog="vllm.entrypoints.openai.api_server", allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", default="facebook/opt-125m")
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    return parser.parse_known_args()[0]


def main() -> None:
    """Serve until told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    options = parse_options()
    say("INFO allot's stand-in for vLLM: no model is loaded")
    Handler.model, Handler.device = options.model, device_text(options)
    say(f"INFO model {options.model} on {Handler.device}")
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    server.daemon_threads = True
    say(f"INFO Starting vLLM API server on http://{options.host}:{server.server_address[1]}")
    for path in ("/v1/models", "/v1/completions", "/v1/chat/completions"):
        say(f"INFO Route: {path}, Methods: {'GET' if path == '/v1/models' else 'POST'}")
    say(f"INFO:     Started server process [{os.getpid()}]")
    say("INFO:     Waiting for application startup.")
    say("INFO:     Application startup complete.")
    server.serve_forever()


if __name__ == "__main__":
    main()
