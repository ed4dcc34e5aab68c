"""Cases and what is found with them: what an answer must be, and files from which a case can be sent again."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import msgspec

from fuzz.wire import STATUS_TEXT_TYPES, Answer

SLOW_S = 2.0
# RFC 9112, section 6.1: what is due to a transfer coding that is not known. The one answer of 5xx that blames the client.
_UNKNOWN_CODING = b"unsupported transfer encoding"
# A webhook of ours that does not answer is told as kube-apiserver tells it, which is a 500 and someone else's fault.
_WEBHOOK_FAILED = "InternalError: Internal error occurred: failed calling webhook "
# A kubelet's answer to exec and attach where the container does not run, which is a 500 as well (GetExec and GetAttach, kubelet_pods.go, 1.37).
_NOT_RUNNING = re.compile(rb'container not found \(".*"\)|container .* not found in pod \S+', re.DOTALL)
# What HTTP itself is to be told in plain text, before there is a request to be answered with a Status.
_PLAIN_CODES = (400, 408, 413, 431, 501)


_END_OF_HEAD = b"\r\n\r\n"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes to be sent as a user, in pieces."""

    number: int
    user: str
    pieces: tuple[bytes, ...]
    method: str = "GET"
    # How many answers are due; 0: the bytes need not be a request.
    due: int = 1
    # Whether the connection is not to be used again.
    fresh: bool = False
    # Whether others than the server decide how long an answer takes.
    waits: bool = False
    # Whether its end is not seen: the client leaves after the first pieces.
    leaves: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must not be."""

    sort: str
    text: str
    case: Case
    # What was sent about the same object before.
    before: tuple[Case, ...] = ()


def fault(case: Case, answer: Answer, *, has_status: bool) -> tuple[str, str] | None:
    """What is wrong with an answer: its sort, and words; None if nothing is. has_status: whether errors are Status objects."""
    status = answer.status
    if status == 0:
        if answer.pending or not (case.due or _END_OF_HEAD in b"".join(case.pieces).lstrip(b"\r\n")):
            return None
        return "no answer", "the connection was closed without an answer"
    if status < 400 or case.method == "HEAD":
        if status >= 500 and status not in (503, 504):
            return f"status {status}", "to a HEAD request"
        return None
    reason = answer.reason_of_status()
    if status >= 500:
        told = answer.body if not has_status else (reason or "").strip(": ")
        if status in (503, 504) and told:
            return None
        if status == 500 and reason is not None and reason.startswith(_WEBHOOK_FAILED):
            return None
        if status == 500 and not has_status and _NOT_RUNNING.fullmatch(answer.body):
            return None
        if status == 501 and answer.body.endswith(_UNKNOWN_CODING):
            return None
        return f"status {status}", reason or repr(answer.body[:300])
    if has_status and reason is None and not (status in _PLAIN_CODES and answer.media_type in STATUS_TEXT_TYPES):
        return "error without Status", f"{status} {answer.media_type}: {answer.body[:200]!r}"
    return None


def write(folder: Path, finding: Finding, seed: int, target: str) -> Path:
    """A file from which the case can be replayed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.sort.replace(' ', '-')}-{seed}-{finding.case.number}.json"
    told = {
        "sort": finding.sort,
        "text": finding.text,
        "target": target,
        "seed": seed,
        "number": finding.case.number,
        "request": b"".join(finding.case.pieces)[:2000].decode("utf-8", "backslashreplace"),
        "case": _plain(finding.case),
        "before": [_plain(case) for case in finding.before],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1))
    return path


def read(path: Path) -> tuple[str, Case, tuple[Case, ...]]:
    """The target, the case and what is to be sent before, from a file."""
    told = msgspec.json.decode(path.read_bytes())
    return told["target"], _case(told["case"]), tuple(_case(each) for each in told["before"])


def _plain(case: Case) -> dict[str, Any]:
    return {**msgspec.structs.asdict(case), "pieces": [base64.b64encode(piece).decode() for piece in case.pieces]}


def _case(plain: dict[str, Any]) -> Case:
    return Case(**{**plain, "pieces": tuple(base64.b64decode(piece) for piece in plain["pieces"])})
