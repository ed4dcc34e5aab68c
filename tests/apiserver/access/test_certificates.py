"""The server's own authority, what it signs, and what it accepts."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.access.certificates import (
    ADMIN,
    SCHEDULER,
    CertificateAuthority,
    Certificates,
    Identity,
    InvalidCertificate,
    KeyPair,
    node_identity,
)
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.apiserver.access.secret_files import SecretFileError
from allot.process.clock import ManualClock, SystemClock
from waiting import WAIT_S

NOW = datetime(2026, 11, 15, tzinfo=UTC)
DAY = 24 * 3600.0


def der(pair: KeyPair) -> bytes:
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create(NOW)


def test_common_name_is_the_user_and_organizations_are_groups(authority: CertificateAuthority) -> None:
    user = authority.authenticate(der(authority.issue_client(node_identity("n1"), NOW)), NOW.timestamp())
    assert user is not None
    assert (user.name, user.groups) == ("system:node:n1", ("system:nodes", "system:authenticated"))
    (credential,) = user.extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("X509SHA256=")
    admin = authority.authenticate(der(authority.issue_client(ADMIN, NOW)), NOW.timestamp())
    assert admin is not None
    assert "system:masters" in admin.groups


def holds(authority: CertificateAuthority, content: bytes, now: float = NOW.timestamp()) -> bool:
    try:
        return authority.authenticate(content, now) is not None
    except InvalidCertificate:
        return False


def test_certificates_of_others_are_not_accepted(authority: CertificateAuthority) -> None:
    other = CertificateAuthority.create(NOW)
    assert not holds(authority, der(other.issue_client(ADMIN, NOW)))


def test_a_certificate_counts_from_its_first_to_its_last_day(authority: CertificateAuthority) -> None:
    content = der(authority.issue_client(ADMIN, NOW))
    for days, accepted in ((-1, False), (0, True), (364, True), (366, False), (0, True)):
        assert holds(authority, content, NOW.timestamp() + days * DAY) is accepted


def test_a_server_certificate_is_no_credential(authority: CertificateAuthority) -> None:
    assert not holds(authority, der(authority.issue_server(["localhost"], NOW)))


def made(authority: CertificateAuthority, *subject: tuple[x509.ObjectIdentifier, str], critical: bool = False) -> bytes:
    """A certificate of the authority as it would not make it itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    loaded = serialization.load_pem_private_key(authority.pair.key, None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    end = NOW + timedelta(days=1)
    builder = x509.CertificateBuilder(authority.certificate.subject, name, key.public_key(), 1, NOW, end)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.57683.99"), b"\x05\x00")
    builder = builder.add_extension(unknown, critical=critical)
    return builder.sign(loaded, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_certificate_without_a_name_makes_nobody(authority: CertificateAuthority) -> None:
    nameless = made(authority, (NameOID.ORGANIZATION_NAME, "system:masters"))
    assert authority.authenticate(nameless, NOW.timestamp()) is None


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("jane", ("dev",), ("dev", "system:authenticated")),
        ("jane", ("system:authenticated",), ("system:authenticated",)),
        ("jane", ("system:unauthenticated",), ("system:unauthenticated",)),
        (
            "jane",
            ("a,system:masters", "b\nsystem:masters"),
            ("a,system:masters", "b\nsystem:masters", "system:authenticated"),
        ),
        ("system:masters", (), ("system:authenticated",)),
        ("system:anonymous", (), ()),
        ("system:anonymous", ("dev",), ("dev",)),
    ],
)
def test_reserved_names_make_nobody_authenticated(
    authority: CertificateAuthority, name: str, groups: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    user = authority.authenticate(der(authority.issue_client(Identity(name, groups), NOW)), NOW.timestamp())
    assert user is not None
    assert (user.name, user.groups) == (name, expected)


def test_a_certificate_with_two_uids_or_an_unknown_critical_extension_does_not_hold(
    authority: CertificateAuthority,
) -> None:
    uid, name = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2"), (NameOID.COMMON_NAME, "jane")
    assert holds(authority, made(authority, name, (uid, "1")))
    assert not holds(authority, made(authority, name, (uid, "1"), (uid, "2")))
    assert not holds(authority, made(authority, name, critical=True))


@settings(max_examples=30)
@given(st.binary(max_size=2000), st.integers(0, 400), st.integers(0, 255))
def test_damaged_certificates_are_no_credentials(noise: bytes, position: int, byte: int) -> None:
    authority = _AUTHORITY
    assert not holds(authority, noise)
    good = bytearray(_GOOD)
    unchanged = good[position] == byte
    good[position] = byte
    assert holds(authority, bytes(good)) is unchanged


_AUTHORITY = CertificateAuthority.create(NOW)
_GOOD = der(_AUTHORITY.issue_client(ADMIN, NOW))


def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    certificates = Certificates(directory, ManualClock())
    certificates.client("admin", ADMIN)
    assert mode(directory) == 0o700
    files = sorted(file.name for file in directory.iterdir())
    names = ("admin", "ca", "front-proxy-ca", "server")
    assert files == [f"{name}.{ending}" for name in names for ending in ("crt", "key")]
    assert {mode(file) for file in directory.iterdir()} == {0o600}


def test_files_that_others_could_read_are_closed_to_them(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    Certificates(directory, ManualClock())
    (directory / "ca.key").chmod(0o644)
    directory.chmod(0o755)
    Certificates(directory, ManualClock())
    assert mode(directory / "ca.key") == 0o600
    assert mode(directory) == 0o700


def test_a_second_start_uses_what_is_there(tmp_path: Path) -> None:
    first = Certificates(tmp_path, ManualClock())
    server = (tmp_path / "server.crt").read_bytes()
    admin = first.client("admin", ADMIN)
    second = Certificates(tmp_path, ManualClock())
    assert second.authority.pem == first.authority.pem
    assert (tmp_path / "server.crt").read_bytes() == server
    assert second.client("admin", ADMIN) == admin


def test_certificates_are_renewed_a_month_before_their_end_and_for_new_names(tmp_path: Path) -> None:
    clock = ManualClock()
    certificates = Certificates(tmp_path, clock, ["host.example.com"])
    admin = certificates.client("admin", ADMIN)
    assert not certificates.renew()
    clock.advance(300 * DAY)
    assert not certificates.renew()
    assert certificates.client("admin", ADMIN) == admin
    clock.advance(40 * DAY)
    assert certificates.renew()
    renewed = certificates.client("admin", ADMIN)
    assert renewed != admin
    assert certificates.client("admin", SCHEDULER) != renewed
    before = (tmp_path / "server.crt").read_bytes()
    Certificates(tmp_path, clock, ["other.example.com"])
    assert (tmp_path / "server.crt").read_bytes() != before


async def test_a_running_server_renews_its_certificate_by_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    certificates = Certificates(tmp_path, clock)
    context = certificates.server_context()
    before = (tmp_path / "server.crt").read_bytes()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(certificates.keep_renewed())
        async with asyncio.timeout(WAIT_S):
            while (tmp_path / "server.crt").read_bytes() == before:
                await asyncio.sleep(0)
                clock.advance(10 * DAY)
        running.cancel()
    # The authorities of clients and of front proxies.
    assert context.cert_store_stats()["x509_ca"] == 2
    assert (clock.seconds() - ManualClock().seconds()) / DAY < 366


@pytest.mark.parametrize("broken", [b"", b"rubbish", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_damaged_authority_is_an_error_that_says_which_file(tmp_path: Path, broken: bytes) -> None:
    Certificates(tmp_path, ManualClock())
    (tmp_path / "ca.key").write_bytes(broken)
    with pytest.raises(SecretFileError, match=r"ca\.crt"):
        Certificates(tmp_path, ManualClock())
    (tmp_path / "ca.key").unlink()
    with pytest.raises(SecretFileError, match="only one of"):
        Certificates(tmp_path, ManualClock())


def test_a_damaged_server_certificate_is_made_anew(tmp_path: Path) -> None:
    Certificates(tmp_path, ManualClock())
    (tmp_path / "server.crt").write_bytes(b"rubbish")
    Certificates(tmp_path, ManualClock()).server_context()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_the_chain(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, SystemClock(), ["host.example.com"])
    certificates.client("admin", ADMIN)
    for purpose, name in (("sslserver", "server"), ("sslclient", "admin")):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", f"{name}.crt"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == f"{name}.crt: OK\n", done.stderr
    command = ["openssl", "x509", "-in", "server.crt", "-noout", "-text"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for expected in (
        "DNS:kubernetes.default.svc",
        "DNS:host.example.com",
        "IP Address:127.0.0.1",
        "IP Address:10.96.0.1",
    ):
        assert expected in text


def test_server_and_client_meet_over_tls(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, SystemClock())
    certificates.client("admin", ADMIN)
    context = certificates.server_context()
    seen: list[bytes | None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as secure:
                seen.append(secure.getpeercert(binary_form=True))
                secure.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        client = ssl.create_default_context(cafile=str(certificates.ca_file))
        client.load_cert_chain(tmp_path / "admin.crt", tmp_path / "admin.key")
        with (
            socket.create_connection(listener.getsockname()) as plain,
            client.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.send(b"x")
        thread.join()
    assert seen[0] is not None
    user = certificates.authority.authenticate(seen[0], SystemClock().seconds())
    assert user is not None
    assert user.name == "kubernetes-admin"


def test_a_kubeconfig_has_everything_inside_and_belongs_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "new" / "config"
    write_kubeconfig(path, "https://localhost:6443", b"ca", b"cert", b"key", "allot")
    assert mode(path) == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["current-context"] == "allot"
    assert config["clusters"][0]["cluster"]["server"] == "https://localhost:6443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_a_kubeconfig_that_is_there_keeps_its_other_entries(tmp_path: Path) -> None:
    path = tmp_path / "config"
    write_kubeconfig(path, "https://one", b"ca", b"cert", b"key", "one")
    write_kubeconfig(path, "https://two", b"ca", b"cert", b"key", "two")
    write_kubeconfig(path, "https://two:1", b"ca", b"cert", b"key", "two")
    config = yaml.safe_load(path.read_text())
    assert [cluster["cluster"]["server"] for cluster in config["clusters"]] == ["https://one", "https://two:1"]
    assert config["current-context"] == "two"


def test_what_others_wrote_into_a_kubeconfig_is_written_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("users:\n- {name: other, user: {token: 2026-01-02T03:04:05Z, expiry: 2026-01-02}}\n")
    write_kubeconfig(path, "https://one", b"ca", b"cert", b"key", "one")
    user = yaml.load(path.read_text(), Loader=yaml.BaseLoader)["users"][0]["user"]
    assert user == {"token": "2026-01-02T03:04:05Z", "expiry": "2026-01-02"}


@pytest.mark.parametrize("content", ["[1, 2", "- a\n- b\n", "clusters: 7\n", "users:\n- 1\n", "\x00"])
def test_what_is_no_kubeconfig_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(SecretFileError, match="left unchanged"):
        write_kubeconfig(path, "https://one", b"ca", b"cert", b"key", "one")
    assert path.read_text() == content


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.slow
def test_kubectl_reads_the_kubeconfig(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "pki", SystemClock())
    pair = certificates.client("admin", ADMIN)
    path = tmp_path / "config"
    write_kubeconfig(path, "https://localhost:1", certificates.authority.pem, pair.certificate, pair.key, "allot")
    command = ["kubectl", "--kubeconfig", str(path), "config", "view", "--minify", "-o", "jsonpath={.contexts[0].name}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "allot"
