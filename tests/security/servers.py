"""API servers to be attacked: allot's as a process and, where KUBEBUILDER_ASSETS has one, a real kube-apiserver beside it.

Both have the same users: by client certificates of an authority whose key the tests know, and by static tokens.
"""

from __future__ import annotations

import functools
import http.client
import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from allot.apiserver.access.certificates import CertificateAuthority, Identity, KeyPair
from e2e.components import ASSETS, Component, gates
from e2e.servers import ServerProcess
from etcd_server import EtcdServer, find_etcd
from ports import free_port
from waiting import wait_for

ADMIN = Identity("administrator", ("system:masters",))
ADMIN_TOKEN, POWERLESS_TOKEN = "administrator-token", "powerless-token"
TOKENS = f'{ADMIN_TOKEN},administrator,uid-1,"system:masters"\n{POWERLESS_TOKEN},powerless,uid-2,"people"\n'
ANSWER_S = 60
_RBAC = {"apiGroup": "rbac.authorization.k8s.io"}
_PARTS = ("view", "edit", "admin")
# What a user may only with the last part of the role.
_TELLING = {
    "view": ("list", "", "pods"),
    "edit": ("create", "", "pods"),
    "admin": ("create", "rbac.authorization.k8s.io", "rolebindings"),
}


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def message(self) -> str:
        """The message of a Status."""
        message: str = self.value.get("message", "")
        return message


class Server:
    """A running API server and the key of the authority that it trusts."""

    def __init__(self, name: str, url: str, authority: CertificateAuthority, pid: int, folder: Path) -> None:
        self.name = name
        self.authority = authority
        self.pid = pid
        self.folder = folder
        pieces = urlsplit(url)
        self.host, self.port = pieces.hostname or "", pieces.port or 0
        self._contexts: dict[KeyPair | None, ssl.SSLContext] = {}

    def user(self, name: str, *groups: str) -> KeyPair:
        """A client certificate."""
        return self._issued(Identity(name, groups))

    @functools.cache  # noqa: B019 - a server lives as long as the tests
    def _issued(self, identity: Identity) -> KeyPair:
        return self.authority.issue_client(identity, datetime.now(UTC))

    def context(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """TLS towards the server, with a client certificate or without."""
        if pair not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if pair is not None:
                with tempfile.NamedTemporaryFile() as both:
                    both.write(pair.certificate + pair.key)
                    both.flush()
                    context.load_cert_chain(both.name)
            self._contexts[pair] = context
        return self._contexts[pair]

    def connect(self, pair: KeyPair | None = None) -> ssl.SSLSocket:
        """A connection on which nothing was said yet."""
        plain = socket.create_connection((self.host, self.port), timeout=ANSWER_S)
        return self.context(pair).wrap_socket(plain, server_hostname=self.host)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: KeyPair | str | None = "admin",
        kind: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask something. who: a client certificate, None for nobody, "admin", or "token:..." for a bearer token."""
        every = dict(headers or {})
        if isinstance(who, str) and who.startswith("token:"):
            every["Authorization"] = f"Bearer {who.removeprefix('token:')}"
        pair = self._issued(ADMIN) if who == "admin" else who if isinstance(who, KeyPair) else None
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if data is not None:
            every.setdefault("Content-Type", kind)
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=ANSWER_S, context=self.context(pair))
        try:
            connection.request(method, path, data, every)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def raw(self, request: bytes, who: KeyPair | None = None) -> bytes:
        """Everything that the server says to these bytes, until it closes the connection or says nothing for a while."""
        with self.connect(who) as connection:
            connection.settimeout(10)
            connection.sendall(request)
            said = b""
            try:
                while data := connection.recv(65536):
                    said += data
            except (TimeoutError, ConnectionError):
                pass
            return said

    def create(self, path: str, object_: dict[str, Any], **sent: Any) -> Any:
        """The object as it was stored."""
        answer = self.send("POST", path, object_, **sent)
        assert answer.status == 201, f"{self.name}: POST {path}: {answer.status} {answer.body!r}"
        return answer.value

    def grant(self, user: str, namespace: str, role: str = "edit") -> KeyPair:
        """The certificate of a user that has one of the usual roles in one namespace."""
        # The usual roles are put together of these by a controller, which does not run beside a bare kube-apiserver.
        parts = [f"system:aggregate-to-{part}" for part in _PARTS[: _PARTS.index(role) + 1]]
        for part in (*parts, "system:aggregated-metrics-reader"):
            reference = {**_RBAC, "kind": "ClusterRole", "name": part}
            subject = {**_RBAC, "kind": "User", "name": user}
            name = f"{user}-{part.rpartition(':')[2]}"
            binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
            self.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
        # kube-apiserver sees its own bindings a moment later.
        self.wait_until_allowed(user, namespace, *_TELLING[role])
        return self.user(user)

    def wait_until_allowed(self, user: str, namespace: str, verb: str, group: str, resource: str) -> None:
        """Until a binding has taken effect."""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        review = {"spec": {"user": user, "resourceAttributes": asked}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        what = f"{self.name}: {user} may {verb} {resource} in {namespace}"
        wait_for(what, lambda: self.create(path, review)["status"]["allowed"])

    def wait_until_served(self, path: str) -> None:
        """Until a new kind has its path."""
        wait_for(f"{self.name}: {path} is served", lambda: self.send("GET", path).status == 200)


class Both:
    """Allot and, where there is one, a real kube-apiserver: the same requests go to both and get the same status."""

    def __init__(self, allot: Server, kubernetes: Server | None) -> None:
        self.allot = allot
        self.kubernetes = kubernetes

    @property
    def every(self) -> Sequence[Server]:
        """The servers that there are."""
        return (self.allot,) if self.kubernetes is None else (self.allot, self.kubernetes)

    def send(self, method: str, path: str, body: Any = None, *, who: Any = "admin", **sent: Any) -> Answer:
        """Allot's answer, whose status is kube-apiserver's. who: as for a server, or what `Both.user` gave."""
        answers = [
            server.send(method, path, body, who=who.get(server.name) if isinstance(who, dict) else who, **sent)
            for server in self.every
        ]
        ours, *theirs = answers
        for other in theirs:
            assert ours.status == other.status, f"{method} {path}: allot {_told(ours)}, kube-apiserver {_told(other)}"
        return ours

    def create(self, path: str, object_: dict[str, Any], **sent: Any) -> Any:
        """The object as allot stored it."""
        answer = self.send("POST", path, object_, **sent)
        assert answer.status == 201, f"POST {path}: {_told(answer)}"
        return answer.value

    def user(self, name: str, *groups: str) -> dict[str, KeyPair]:
        """A client certificate for each server."""
        return {server.name: server.user(name, *groups) for server in self.every}

    def grant(self, user: str, namespace: str, role: str = "edit") -> dict[str, KeyPair]:
        """A user that has a cluster role in one namespace, on each server."""
        return {server.name: server.grant(user, namespace, role) for server in self.every}


def _told(answer: Answer) -> str:
    return f"{answer.status} {answer.body[:500]!r}"


@contextmanager
def allot_server(folder: Path, arguments: Sequence[str] = (), store: str = "sqlite") -> Iterator[Server]:
    """`allot apiserver` as a process."""
    with ServerProcess(store, folder, arguments, TOKENS) as process:
        certificates = folder / "data" / "pki"
        pair = KeyPair((certificates / "ca.crt").read_bytes(), (certificates / "ca.key").read_bytes())
        yield Server("allot", process.url, CertificateAuthority.load(pair), process.pid, folder)


@contextmanager
def kube_apiserver(folder: Path) -> Iterator[Server | None]:
    """A real one on an etcd of its own, if KUBEBUILDER_ASSETS has it."""
    binary = shutil.which("kube-apiserver", path=os.environ.get(ASSETS) or os.devnull)
    if binary is None or find_etcd() is None:
        yield None
        return
    authority = CertificateAuthority.create(datetime.now(UTC))
    files = {"ca.crt": authority.pem, "sa.key": _rsa_key(), "tokens.csv": TOKENS.encode()}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    port = free_port()
    with ExitStack() as stack:
        etcd = EtcdServer(folder)
        etcd.start()
        stack.callback(etcd.kill)
        arguments = [
            *("--etcd-servers", etcd.address, "--secure-port", str(port), "--cert-dir", str(folder / "certificates")),
            *("--bind-address=127.0.0.1", "--client-ca-file", str(folder / "ca.crt")),
            *("--token-auth-file", str(folder / "tokens.csv"), "--authorization-mode=Node,RBAC"),
            *("--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount"),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={folder}/sa.key"),
            *(f"--service-account-signing-key-file={folder}/sa.key", "--service-cluster-ip-range=10.96.0.0/16"),
            *gates(Path(binary)),
        ]
        running = stack.enter_context(Component(Path(binary), arguments, folder))
        server = Server("kube-apiserver", f"https://127.0.0.1:{port}", authority, running.pid, folder)
        running.wait_for("kube-apiserver is ready", lambda: _ready(server))
        yield server


def _ready(server: Server) -> bool | None:
    try:
        return server.send("GET", "/readyz").status == 200 or None
    except OSError:
        return None


def _rsa_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
