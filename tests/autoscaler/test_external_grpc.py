"""Cluster Autoscaler's external gRPC protocol, against a provider that is a process of its own: plainly and over mTLS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from allot.apiserver.access.certificates import CertificateAuthority, Identity
from allot.autoscaler.backoff import Backoff
from allot.autoscaler.external_grpc import SERVICE, Credentials, ExternalProvider
from allot.autoscaler.groups import Groups
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.provider import Group, GroupOptions, NodeName, ProviderError, State, TemplateNode
from allot.cli.commands.autoscaler import profile_template
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.process.clock import SystemClock
from allot.wire import external_grpc_pb2 as messages

pytestmark = pytest.mark.slow
PROCESS = Path(__file__).with_name("provider_process.py")


@contextmanager
def provider_process(folder: Path, *files: Path) -> Iterator[str]:
    """Where a provider of its own process answers, with its state in a folder."""
    command = [sys.executable, str(PROCESS), "127.0.0.1:0", str(folder), *map(str, files)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _issue(folder: Path) -> tuple[tuple[Path, Path, Path], Credentials, Credentials]:
    """Files for the provider, and credentials of a client: right ones, and such of another authority."""
    now = datetime.now(UTC)
    authority, other = CertificateAuthority.create(now), CertificateAuthority.create(now)
    server = authority.issue_server(("127.0.0.1",), now)
    paths = (folder / "ca.crt", folder / "server.crt", folder / "server.key")
    for path, data in zip(paths, (authority.pem, server.certificate, server.key), strict=True):
        path.write_bytes(data)
    client, stranger = authority.issue_client(Identity("a"), now), other.issue_client(Identity("b"), now)
    right = Credentials(ca=authority.pem, certificate=client.certificate, key=client.key)
    wrong = Credentials(ca=authority.pem, certificate=stranger.certificate, key=stranger.key)
    return paths, right, wrong


async def _walk(provider: ExternalProvider) -> None:
    await provider.refresh()
    groups = {group.id: group for group in await provider.groups()}
    assert (groups["a100"].min_size, groups["a100"].max_size) == (0, 2)
    assert await provider.target_size("a100") == 0
    await provider.increase("a100", 2)
    assert await provider.target_size("a100") == 2
    first, second = await provider.instances("a100")
    assert first.state is State.CREATING
    assert await provider.group_of(NodeName(provider_id=first.id, name="n")) == "a100"
    assert await provider.group_of(NodeName(provider_id="other://x", name="n")) == ""
    with pytest.raises(ProviderError, match="expected at most 2"):
        await provider.increase("a100", 1)
    await provider.decrease_target("a100", 1)
    assert [each.id for each in await provider.instances("a100")] == [first.id]
    await provider.delete("a100", [NodeName(provider_id=first.id, name="")])
    assert await provider.target_size("a100") == 0
    assert second.id != first.id
    template = await provider.template("a100")
    assert template is not None and template.slices is not None
    (slice_,) = template.slices
    (device,) = slice_.spec.devices or ()
    assert device.capacity["memory"].value.value() == 80 * 2**30
    assert template.node.metadata.labels["node.kubernetes.io/instance-type"] == "a2-ultragpu-1g"
    price = await provider.price(NodeName(provider_id="", name="", labels=template.node.metadata.labels), 0, 3600)
    assert price == pytest.approx(5.07)


async def test_a_provider_on_loopback(tmp_path: Path) -> None:
    """All calls, over a plain connection."""
    with provider_process(tmp_path) as address:
        provider = ExternalProvider(address)
        try:
            await _walk(provider)
        finally:
            await provider.close()


async def test_a_provider_over_mutual_tls(tmp_path: Path) -> None:
    """And nobody else is let in."""
    files, right, wrong = _issue(tmp_path)
    with provider_process(tmp_path, *files) as address:
        provider, stranger, plain = (ExternalProvider(address, each, timeout_s=2.0) for each in (right, wrong, None))
        try:
            await _walk(provider)
            for other in (stranger, plain):
                with pytest.raises(ProviderError, match="NodeGroups"):
                    await other.groups()
        finally:
            for each in (provider, stranger, plain):
                await each.close()


@asynccontextmanager
async def _service(**methods: object) -> AsyncIterator[ExternalProvider]:
    """A provider that only has these methods."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(method)  # type: ignore[arg-type]
        for name, method in methods.items()
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    provider = ExternalProvider(f"127.0.0.1:{port}", timeout_s=0.3)
    try:
        yield provider
    finally:
        await provider.close()
        await server.stop(None)


async def test_a_provider_that_hangs_is_given_up() -> None:
    """Every call has a deadline."""
    import asyncio

    async def hang(_request: bytes, _context: object) -> bytes:
        await asyncio.sleep(60)
        return b""

    async with _service(NodeGroups=hang) as provider:
        with pytest.raises(ProviderError, match=r"(?i)deadline"):
            await provider.groups()


async def test_what_is_optional_may_be_missing_and_nonsense_is_an_error() -> None:
    """Templates and prices are optional; an answer that is none is told as such."""

    async def nonsense(_request: bytes, _context: object) -> bytes:
        return b"\\xff\\xff\\xff"

    async def bad_template(_request: bytes, _context: object) -> bytes:
        return messages.NodeGroupTemplateNodeInfoResponse(nodeBytes=b"\\xff\\xff").SerializeToString()

    async with _service(NodeGroups=nonsense, NodeGroupTemplateNodeInfo=bad_template) as provider:
        with pytest.raises(ProviderError, match="the answer is not a NodeGroupsResponse"):
            await provider.groups()
        with pytest.raises(ProviderError, match="template of group g"):
            await provider.template("g")
        assert await provider.price(NodeName(provider_id="", name=""), 0, 1) is None
    async with _service() as provider:
        assert await provider.template("g") is None


class _Bare:
    """A provider whose template is a bare node."""

    def __init__(self, size: int = 0) -> None:
        self._size = size

    async def refresh(self) -> None:
        """Nothing."""

    async def groups(self) -> list[Group]:
        """One."""
        return [Group(id="g", min_size=0, max_size=3)]

    async def group_of(self, _node: NodeName) -> str:
        """All are of it."""
        return "g"

    async def target_size(self, _group: str) -> int:
        """As it is."""
        return self._size

    async def instances(self, _group: str) -> list[object]:
        """None."""
        return []

    async def template(self, _group: str) -> TemplateNode:
        """Without devices."""
        return TemplateNode(node=Node(metadata=ObjectMeta(name="t")))

    async def price(self, _node: NodeName, _start: float, _end: float) -> None:
        """Not told."""

    async def options(self, _group: str, _defaults: GroupOptions) -> None:
        """Not told."""


async def test_a_provider_may_have_options_for_a_group() -> None:
    """What it leaves out is as for all; one without the call has none."""
    defaults = AutoscalerOptions().of_groups
    asked: list[messages.NodeGroupAutoscalingOptionsRequest] = []

    async def told(request: bytes, _context: object) -> bytes:
        asked.append(messages.NodeGroupAutoscalingOptionsRequest.FromString(request))
        found = messages.NodeGroupAutoscalingOptions(scaleDownGpuUtilizationThreshold=0.25)
        found.scaleDownUnneededDuration.FromSeconds(90)
        answer = messages.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=found)
        return answer.SerializeToString()

    async def nothing(_request: bytes, _context: object) -> bytes:
        return b""

    async with _service(NodeGroupGetOptions=told) as provider:
        found = await provider.options("g", defaults)
        assert found == replace(defaults, gpu_utilization_threshold=0.25, unneeded_s=90.0)
        assert (asked[0].id, asked[0].defaults.scaleDownUnneededDuration.seconds) == ("g", 600)
    async with _service(NodeGroupGetOptions=nothing) as provider:
        assert await provider.options("g", defaults) == defaults
    async with _service() as provider:
        assert await provider.options("g", defaults) is None


async def test_devices_of_a_bare_template_come_from_a_profile_or_a_live_node_or_nowhere() -> None:
    """With neither, no devices are assumed, and it is known that they are not."""
    clock = SystemClock()

    def groups(**profiles: str) -> Groups:
        options = AutoscalerOptions(profiles=profiles)
        return Groups(_Bare(), clock, options, Backoff(options), profile_template)  # type: ignore[arg-type]

    (state,) = await groups().look([], [])
    assert state.pool is not None and state.pool.template.slices == () and state.pool.template.source == ""
    (state,) = await groups(g="a2-ultragpu-1g").look([], [])
    assert state.pool is not None and state.pool.template.drivers == ("gpu.nvidia.com",)
    live = profile_template("h100x8")
    assert live is not None
    from allot.core.model.core_v1 import NodeCondition, NodeStatus

    ready = NodeStatus(conditions=(NodeCondition(type="Ready", status="True"),))
    node = Node(metadata=ObjectMeta(name=live.node.metadata.name, uid="u"), status=ready)
    (state,) = await groups().look([node], live.slices)
    assert state.pool is not None and state.pool.template.source == f"node {node.metadata.name}"
    assert len(state.ready) == 1
