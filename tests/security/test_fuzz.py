"""A short run of the fuzzer, so that what it finds stays found; `make fuzz` has the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fuzz.corpus import of_agent
from fuzz.findings import Case, Finding, fault, read, write
from fuzz.sequences import Sequences
from fuzz.shrinking import shrunk
from fuzz.wire import Answer

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("target", "requests"), [("apiserver", 800), ("node", 300)])
def test_mutated_requests_find_nothing(target: str, requests: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz", "--target", target, "--requests", str(requests), "--seed", "11"]
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]


CASE = Case(number=7, user="admin", pieces=(b"GET /a?b=c&d=e HTTP/1.1\r\nHost: x\r\n\r\n",))


def _answer(status: int, **body: object) -> Answer:
    told = msgspec.json.encode({"kind": "Status", "code": status, **body})
    return Answer(status=status, headers={"content-type": "application/json"}, body=told)


@pytest.mark.parametrize(
    ("answer", "sort"),
    [
        (_answer(500, reason="InternalError"), "status 500"),
        (_answer(500, reason="InternalError", message='Internal error occurred: failed calling webhook "w"'), None),
        (_answer(502, reason="x"), "status 502"),
        (_answer(503, reason="ServiceUnavailable", message="later"), None),
        (_answer(503), "status 503"),
        (_answer(404, reason="NotFound"), None),
        (Answer(status=404, headers={"content-type": "text/html"}, body=b"no"), "error without Status"),
        (Answer(status=400, headers={"content-type": "text/plain; charset=utf-8"}, body=b"no"), None),
        (Answer(status=501, body=b"501 unsupported transfer encoding"), None),
        (Answer(status=501, body=b"not implemented"), "status 501"),
        (Answer(), "no answer"),
        (Answer(status=200), None),
    ],
)
def test_what_an_answer_must_not_be_is_found(answer: Answer, sort: str | None) -> None:
    found = fault(CASE, answer, has_status=True)
    assert (found[0] if found else None) == sort


@pytest.mark.parametrize(
    ("told", "sort"),
    [
        (b'container not found ("main")', None),
        (b"container main not found in pod a_b", None),
        (b"container main not found in pod a_b: Traceback", "status 500"),
        (b"", "status 500"),
    ],
)
def test_an_agent_may_answer_500_where_a_container_does_not_run(told: bytes, sort: str | None) -> None:
    found = fault(CASE, Answer(status=500, body=told), has_status=False)
    assert (found[0] if found else None) == sort


def test_a_case_comes_back_from_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, Finding(sort="status 500", text="x", case=CASE, before=(CASE,)), seed=3, target="node")
    assert read(path) == ("node", CASE, (CASE,))


def test_the_same_seed_makes_the_same_requests() -> None:
    first, again, other = (Sequences(of_agent(), seed).sequence(5) for seed in (1, 1, 2))
    assert first == again != other


async def test_a_case_shrinks_to_what_makes_it_fail() -> None:
    body = b'{"a":1,"b":{"c":[1,2],"d":"x"}}'
    head = b"POST /a?b=c&d=e HTTP/1.1\r\nHost: x\r\nAccept: y\r\nContent-Length: %d" % len(body)

    async def fails(case: Case) -> bool:
        return b"d=e" in case.pieces[0] and b'"d":"x"' in case.pieces[0]

    case = await shrunk(Case(number=1, user="admin", pieces=(head + b"\r\n\r\n" + body,)), fails)
    assert case.pieces[0] == b'POST /a?d=e HTTP/1.1\r\nContent-Length: 15\r\n\r\n{"b":{"d":"x"}}'
