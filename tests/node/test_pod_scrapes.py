"""What pods serve on their Prometheus endpoints: real servers on this machine, good ones, slow ones and hostile ones."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from allot.core.metrics.exposition import Exposition
from allot.node import pod_scrapes
from allot.node.pod_scrapes import PodScrapes, ScrapeFailed, target_of
from allot.node.runtimes.port import Runtime, Streams
from allot.node.runtimes.process_streams import connect_port
from allot.node.serving.certificates import server_context
from allot.process.clock import SystemClock

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"


class _Machine:
    """The part of a runtime that leads into pods, as that of processes has it."""

    async def connect(self, sandbox_id: str, port: int) -> Streams:
        assert sandbox_id
        return await connect_port("127.0.0.1", port)


def pod(port: int | str, name: str = "p", namespace: str = "ns", **annotations: str) -> dict[str, Any]:
    said = {f"prometheus.io/{key}": value for key, value in annotations.items()}
    return {
        "metadata": {
            "uid": f"uid-{name}",
            "name": name,
            "namespace": namespace,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), **said},
        },
        "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 9000}]}]},
        "status": {"phase": "Running"},
    }


@asynccontextmanager
async def serving(answer: bytes | Answer, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if callable(answer):
                await answer(reader, writer)
            else:
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the agent has had enough
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Recorder:
    """What was recorded of pods, by uid."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []

    def __call__(self, pod: Mapping[str, Any], text: str) -> None:
        self.texts.append((pod["metadata"]["uid"], text))


async def scrape(*pods: dict[str, Any], recorder: Recorder | None = None, looks: int = 1) -> Exposition:
    """The last look."""

    async def sandbox_of(uid: str) -> str:
        return f"sandbox of {uid}"

    scrapes = PodScrapes(cast("Runtime", _Machine()), sandbox_of, SystemClock(), recorder or Recorder())
    for _ in range(looks - 1):
        await scrapes.scrape(pods)
    return await scrapes.scrape(pods)


def values(found: Exposition) -> dict[str, float]:
    return {f"{sample.labels['pod']}.{sample.name}": sample.value for sample in found.samples}


async def test_a_pod_tells_of_itself() -> None:
    text = b'# TYPE waiting gauge\nwaiting{model="m"} 7\nwaiting{pod="other",namespace="victim"} 3\n'
    async with serving(HEAD + text) as port:
        found = await scrape(pod(port))
    assert [sample.labels for sample in found.samples] == [
        {"namespace": "ns", "pod": "p", "model": "m"},
        {"namespace": "ns", "pod": "p", "exported_pod": "other", "exported_namespace": "victim"},
    ]


async def test_exporters_of_the_cluster_speak_for_others() -> None:
    async with serving(HEAD + b'DCGM_FI_DEV_GPU_UTIL{pod="train",namespace="team"} 80\n') as port:
        found = await scrape(pod(port, "exporter", "kube-system"))
    assert [sample.labels for sample in found.samples] == [{"pod": "train", "namespace": "team"}]


async def test_https_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    context = server_context(tmp_path, "p", "127.0.0.1", b"", SystemClock().seconds())
    async with serving(HEAD + b"waiting 7\n" + b"x" * 200_000, context) as port:
        assert values(await scrape(pod(port, scheme="https"))) == {"p.waiting": 7.0}
    async with serving(HEAD + b"waiting 7\n") as port:
        assert values(await scrape(pod(port, scheme="https"))) == {}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/metrics\r\n\r\nwaiting 7\n",
        b"HTTP/1.1 500 Oops\r\n\r\nwaiting 7\n",
        b"waiting 7\n",
        b"",
        HEAD + b"waiting 7\n" * 200_000,
    ],
    ids=["redirect", "error", "no HTTP", "nothing", "too long"],
)
async def test_other_answers_say_nothing_harm_nobody_and_are_recorded_if_they_last(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_scrapes, "KEPT_S", 0.0)
    async with serving(answer) as port, serving(HEAD + b"waiting 8\n") as other:
        for looks, recorded in ((1, []), (2, ["uid-p"]), (4, ["uid-p"])):
            recorder = Recorder()
            found = await scrape(pod(port), pod(other, "q"), recorder=recorder, looks=looks)
            assert values(found) == {"q.waiting": 8.0}
            assert [uid for uid, _ in recorder.texts] == recorded


async def test_too_many_samples_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_scrapes, "KEPT_S", 0.0)
    recorder = Recorder()
    text = b"".join(b"m%d 1\n" % number for number in range(pod_scrapes.SAMPLES_MAX + 5))
    async with serving(HEAD + text) as port:
        assert len((await scrape(pod(port), recorder=recorder, looks=2)).samples) == pod_scrapes.SAMPLES_MAX
    text = f"5 lines are left out: invalid samples, or more than {pod_scrapes.SAMPLES_MAX}"
    assert recorder.texts == [("uid-p", text)]


async def test_slow_pods_take_their_own_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_scrapes, "TIMEOUT_S", 0.5)

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in HEAD + b"waiting 7\n" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.1)

    async with serving(drip) as port, serving(HEAD + b"waiting 8\n") as other:
        assert values(await scrape(pod(port), pod(other, "q"))) == {"q.waiting": 8.0}


async def test_who_was_not_asked_is_the_first_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_scrapes, "ALL_S", 0.5)
    monkeypatch.setattr(pod_scrapes, "KEPT_S", 0.0)
    monkeypatch.setattr(pod_scrapes, "AT_ONCE", 1)
    asked: list[str] = []

    async def sandbox_of(uid: str) -> str:
        asked.append(uid)
        return uid

    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    scrapes = PodScrapes(cast("Runtime", _Machine()), sandbox_of, SystemClock(), Recorder())
    async with serving(hang) as port:
        for _ in range(2):
            await scrapes.scrape([pod(port, "a"), pod(port, "b")])
    assert asked == ["uid-a", "uid-b"]


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"port": "0"}, 'annotation prometheus.io/port: "0": expected a port, 1 to 65535'),
        ({"port": "99999"}, 'annotation prometheus.io/port: "99999": expected a port, 1 to 65535'),
        ({"port": "metrics"}, 'annotation prometheus.io/port: "metrics": expected a port, 1 to 65535'),
        ({"port": "80@evil"}, 'annotation prometheus.io/port: "80@evil": expected a port, 1 to 65535'),
        ({"path": "metrics"}, 'annotation prometheus.io/path: "metrics": expected a path that starts with /'),
        ({"path": "/a b"}, 'annotation prometheus.io/path: "/a b": expected a path that starts with /'),
        ({"path": "/\r\nX: y"}, 'annotation prometheus.io/path: "/\r\nX: y": expected a path that starts with /'),
        ({"scheme": "gopher"}, 'annotation prometheus.io/scheme: "gopher": expected http or https'),
    ],
)
def test_annotations_that_mean_nothing(annotations: dict[str, str], text: str) -> None:
    with pytest.raises(ScrapeFailed) as caught:
        target_of(pod(**{"port": "80", **annotations}))  # type: ignore[arg-type]
    assert str(caught.value) == text


def test_who_is_asked() -> None:
    assert target_of({**pod(80), "status": {"phase": "Pending"}}) is None
    assert target_of(pod(80, scrape="false")) is None
    declared = pod(80)
    declared["metadata"]["annotations"]["allot.dev/metrics"] = "waiting 3"
    assert target_of(declared) is None
    found = target_of(pod(""))
    assert found is not None and (found.port, found.path, found.is_tls) == (9000, "/metrics", False)
