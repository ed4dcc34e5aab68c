"""What etcd adds to the contract: the layout of kube-apiserver, broken connections, several members, TLS."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.store.port import Compacted, Event, KeyExists, RevisionConflict, StoreUnavailable
from allot.wire import etcd_pb2 as pb
from etcd_server import MISSING, EtcdServer, find_etcd
from ports import free_port
from waiting import WAIT_S

pytestmark = pytest.mark.skipif(find_etcd() is None, reason=MISSING)

PODS = "/registry/pods/default/"


def pod(number: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"n": number}}


async def opened(*servers: str, **options: Any) -> EtcdStore:
    store = EtcdStore(EtcdOptions(servers=servers, **{"progress_s": 0.05, "retry_s": 0.05, **options}))
    await store.open()
    return store


async def call(address: str, method: str, request: Any, answer: Any) -> Any:
    """Ask etcd directly, past the store."""
    async with grpc.aio.insecure_channel(address.removeprefix("http://")) as channel:
        ask = channel.unary_unary(
            f"/etcdserverpb.KV/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer,
        )
        answered: Awaitable[Any] = ask(request, timeout=WAIT_S)
        return await answered


async def raw_put(address: str, key: str, value: bytes) -> None:
    put = pb.RequestOp(request_put=pb.PutRequest(key=key.encode(), value=value))
    await call(address, "Txn", pb.TxnRequest(success=[put]), pb.TxnResponse.FromString)


async def next_events(watch: Any, count: int) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            item = await anext(aiter(watch))
            if isinstance(item, Event):
                found.append((item.type.value, item.entry.key, item.revision))
    return found


async def test_values_are_json_without_resource_version_under_the_prefix(etcd_server: EtcdServer) -> None:
    store = await opened(etcd_server.address, prefix="/registry-layout")
    created = await store.create(PODS + "a", pod(1))
    await store.update(PODS + "a", msgspec.json.decode(created.encoded) | {"spec": {"n": 2}}, created.revision)
    request = pb.RangeRequest(key=b"/registry-layout/pods/default/a")
    found = (await call(etcd_server.address, "Range", request, pb.RangeResponse.FromString)).kvs
    assert msgspec.json.decode(found[0].value) == pod(2)
    await store.close()


async def test_an_object_written_by_another_server_is_found(etcd_server: EtcdServer) -> None:
    store = await opened(etcd_server.address, prefix="/registry-two")
    other = await opened(etcd_server.address, prefix="/registry-two/")
    watch = store.watch("/registry/", await store.revision())
    created = await other.create(PODS + "a", pod(1))
    assert await next_events(watch, 1) == [("ADDED", PODS + "a", created.revision)]
    found = await store.get(PODS + "a")
    assert found is not None
    assert found.object == created.object
    with pytest.raises(KeyExists):
        await store.create(PODS + "a", pod(2))
    await store.update(PODS + "a", pod(2), created.revision)
    with pytest.raises(RevisionConflict):
        await other.update(PODS + "a", pod(3), created.revision)
    await watch.close()
    await store.close()
    await other.close()


async def test_a_value_that_is_not_understood_is_named(etcd_server: EtcdServer) -> None:
    store = await opened(etcd_server.address, prefix="/registry-odd")
    for number, value in enumerate((b"hello", b"[1]", b'{"metadata": 1}', b"", b"k8s\x00\n\x0b")):
        await raw_put(etcd_server.address, f"/registry-odd/pods/default/odd{number}", value)
        entry = await store.get(f"{PODS}odd{number}")
        assert entry is not None
        with pytest.raises(StoreUnavailable, match=f"odd{number}': does not hold a Kubernetes object"):
            _ = entry.object
    await store.close()


async def test_a_long_list_is_read_in_parts_of_one_revision(
    etcd_server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allot.store.etcd.RANGE_MAX", 3)
    store = await opened(etcd_server.address, prefix="/registry-parts")
    for number in range(10):
        await store.create(f"{PODS}{number}", pod(number))
    page = await store.list(PODS)
    assert [entry.object["spec"]["n"] for entry in page.entries] == list(range(10))
    assert page.revision == await store.revision()
    page = await store.list(PODS, limit=7)
    assert (len(page.entries), page.remaining) == (7, 3)
    await store.close()


async def test_an_unreachable_etcd_is_told_in_time() -> None:
    store = EtcdStore(EtcdOptions(servers=(f"http://127.0.0.1:{free_port()}",), call_timeout_s=0.3, retry_s=0.05))
    with pytest.raises(StoreUnavailable, match=r"etcd at http://127.* no answer within 0.3 s .*check that etcd runs"):
        await store.open()
    with pytest.raises(StoreUnavailable, match="no servers: expected at least one"):
        EtcdStore(EtcdOptions(servers=()))
    for wrong in ("ftp://x", "http://", "http://x:port"):
        with pytest.raises(StoreUnavailable, match="etcd server"):
            await EtcdStore(EtcdOptions(servers=(wrong,))).open()


async def test_a_member_that_is_down_is_passed_over(etcd_server: EtcdServer) -> None:
    store = await opened(f"http://127.0.0.1:{free_port()}", etcd_server.address, prefix="/registry-over")
    created = await store.create(PODS + "a", pod(1))
    watch = store.watch(PODS, created.revision - 1)
    assert len(await next_events(watch, 1)) == 1
    await watch.close()
    await store.close()


async def test_a_store_that_was_closed_says_so(etcd_server: EtcdServer) -> None:
    store = await opened(etcd_server.address)
    async with asyncio.timeout(WAIT_S):
        gets = (store.get(PODS + "a") for _ in range(20))
        *answers, _ = await asyncio.gather(*gets, store.close(), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    with pytest.raises(StoreUnavailable, match="is closed"):
        await store.get(PODS + "a")


class Proxy:
    """Stands between store and etcd. While `lossy`, requests go through, answers do not, and the connection then breaks."""

    def __init__(self, server: EtcdServer) -> None:
        self._port = int(server.address.rpartition(":")[2])
        self.lossy = False

    async def __aenter__(self) -> str:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
            try:
                while data := await source.read(65536):
                    if answers and self.lossy:
                        # Time enough for etcd to do what it was asked to do.
                        await asyncio.sleep(0.1)
                        self.lossy = False
                        break
                    target.write(data)
                    await target.drain()
            except ConnectionError:
                pass
            finally:
                writer.close()
                up_writer.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pass_on(reader, up_writer, answers=False))
            tasks.create_task(pass_on(up_reader, writer, answers=True))


@pytest.mark.slow
async def test_a_write_whose_answer_is_lost_is_known_again(etcd_server: EtcdServer) -> None:
    proxy = Proxy(etcd_server)
    async with proxy as address:
        store = await opened(address, prefix="/registry-lost")
        start = await store.revision()
        proxy.lossy = True
        created = await store.create(PODS + "a", pod(1))
        assert (created.revision, created.object["spec"]) == (start + 1, {"n": 1})
        proxy.lossy = True
        updated = await store.update(PODS + "a", pod(2), created.revision)
        assert (updated.revision, updated.object["spec"]) == (start + 2, {"n": 2})
        proxy.lossy = True
        with pytest.raises(StoreUnavailable, match=r"'/registry/pods/default/a' is gone, .* is unknown"):
            await store.delete(PODS + "a", updated.revision)
        # Somebody else's objects are not taken for one's own.
        created = await store.create(PODS + "a", pod(1))
        proxy.lossy = True
        with pytest.raises(KeyExists):
            await store.create(PODS + "a", pod(3))
        proxy.lossy = True
        with pytest.raises(RevisionConflict):
            await store.update(PODS + "a", pod(3), created.revision - 1)
        await store.close()


@pytest.mark.slow
async def test_watches_and_writers_go_on_when_etcd_is_killed_and_comes_back(tmp_path: Path) -> None:
    with EtcdServer(tmp_path) as server:
        store = await opened(server.address)
        start = await store.revision()
        acknowledged: list[tuple[str, int]] = []

        async def write(writer: int) -> None:
            for number in range(60):
                key = f"{PODS}{writer}-{number}"
                try:
                    entry = await store.create(key, pod(number))
                    acknowledged.append((key, entry.revision))
                except StoreUnavailable as error:
                    assert "is unknown" in str(error)
                await asyncio.sleep(0.01)

        watch = store.watch("/registry/", start)
        async with asyncio.TaskGroup() as tasks:
            writing = [tasks.create_task(write(writer)) for writer in range(4)]
            # Also without new connections in between: the watch reads all through it.
            reading = tasks.create_task(next_events(watch, 240))
            for _ in range(3):
                await asyncio.sleep(0.2)
                server.kill()
                await asyncio.sleep(0.1)
                server.start()
        assert all(task.done() for task in writing)
        seen = reading.result()
        revisions = [revision for _, _, revision in seen]
        # Each exactly once and in order; and the answer that a writer got is the revision of its own write.
        assert revisions == sorted(set(revisions))
        assert {type_ for type_, _, _ in seen} == {"ADDED"}
        assert {key: revision for _, key, revision in seen} == dict(acknowledged)
        assert len(acknowledged) == 240
        await watch.close()
        await store.close()


async def test_a_watch_that_was_away_during_a_compaction_must_list_again(etcd_server: EtcdServer) -> None:
    store = await opened(etcd_server.address, prefix="/registry-away")
    watch = store.watch(PODS, await store.revision())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await next_events(watch, 1)
    entry = await store.create(PODS + "a", pod(1))
    entry = await store.update(PODS + "a", pod(2), entry.revision)
    await store.compact(entry.revision)
    with pytest.raises(Compacted):
        await next_events(watch, 1)
    await store.close()


def certificates(folder: Path) -> dict[str, Path]:
    """A CA, and one certificate of it for server and client alike."""
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)

    def write(name: str, subject: str, issuer: x509.Name | None, signer: ec.EllipticCurvePrivateKey | None) -> Any:
        key = ec.generate_private_key(ec.SECP256R1())
        own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder(
                issuer or own, own, key.public_key(), x509.random_serial_number(), now - day, now + day
            )
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(addresses, critical=False)
            .sign(signer or key, hashes.SHA256())
        )
        (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / f"{name}.key").write_bytes(key.private_bytes(*pem))
        return own, key

    authority, key = write("ca", "test CA", None, None)
    write("both", "test", authority, key)
    return {"ca_file": folder / "ca.crt", "cert_file": folder / "both.crt", "key_file": folder / "both.key"}


@pytest.mark.slow
async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    with EtcdServer(tmp_path, tls=(files["ca_file"], files["cert_file"], files["key_file"])) as server:
        assert server.address.startswith("https://")
        store = await opened(server.address, **files)
        created = await store.create(PODS + "a", pod(1))
        watch = store.watch(PODS, created.revision - 1)
        assert len(await next_events(watch, 1)) == 1
        await watch.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="no answer within"):
            await opened(server.address, ca_file=files["ca_file"], call_timeout_s=0.5)
        with pytest.raises(StoreUnavailable, match="cannot read certificate or key"):
            await opened(server.address, ca_file=tmp_path / "missing.crt")
