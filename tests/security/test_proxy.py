"""Whoever may write an address into an object leads the API server nowhere that they could not go themselves: its certificate
is shown to kubelets alone, its own endpoints and this machine are never dialled, and nobody's credentials are passed on."""

from __future__ import annotations

import itertools
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from allot.apiserver.access.certificates import KeyPair
from security.backends import backend, network_address
from security.servers import ADMIN_TOKEN, Answer, Both, Server, allot_server

pytestmark = pytest.mark.slow

SECRETS = "/api/v1/namespaces/kube-system/secrets"
THIS_MACHINE = [
    *("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1", "64:ff9b::127.0.0.1"),
    *("2002:7f00:1::", "0.0.0.0", "::", "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "224.0.0.1"),
]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that listens on all addresses of this machine."""
    with allot_server(tmp_path_factory.mktemp("open"), ["--bind-address", "0.0.0.0"]) as started:
        yield started


def add_pod(server: Server, address: str, namespace: str = "default", node: str = "") -> str:
    """A pod whose status says where it is. The administrator plays the node, which writes statuses."""
    name = f"pod-{next(_numbers)}"
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x"}], "automountServiceAccountToken": False}
    if node:
        spec["nodeName"] = node
    server.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
    if address:
        status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        answer = server.send("PATCH", path, status, kind="application/merge-patch+json")
        assert answer.status == 200, answer.body
    return name


def add_node(server: Server, address: str, port: int, kind: str = "InternalIP") -> tuple[str, KeyPair]:
    """A node that says itself where its kubelet is."""
    name = f"node-{next(_numbers)}"
    agent = server.user(f"system:node:{name}", "system:nodes")
    server.create("/api/v1/nodes", {"metadata": {"name": name}}, who=agent)
    move_node(server, name, agent, address, port, kind)
    return name, agent


def move_node(server: Server, name: str, agent: KeyPair, address: str, port: int, kind: str = "InternalIP") -> None:
    addresses = [{"type": kind, "address": address}]
    status = {"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    path = f"/api/v1/nodes/{name}/status"
    answer = server.send("PATCH", path, status, who=agent, kind="application/merge-patch+json")
    assert answer.status == 200, answer.body


def proxy(pod: str, port: int | str, path: str = "/", *, scheme: str = "", namespace: str = "default") -> str:
    name = f"{scheme}:{pod}:{port}" if scheme else f"{pod}:{port}"
    return f"/api/v1/namespaces/{namespace}/pods/{name}/proxy{path}"


def log(pod: str, namespace: str = "default") -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{pod}/log"


def assert_refused(answer: Answer) -> None:
    assert (answer.status, answer.message.split(":")[0]) == (400, "address not allowed"), answer.body


# --- the server's own endpoints, and this machine ---


def test_edit_in_one_namespace_does_not_become_system_masters_through_a_pod(open_server: Server) -> None:
    """The pod of a process runtime has the address of its node, which may be the server's."""
    server = open_server
    server.create("/api/v1/namespaces", {"metadata": {"name": "edited"}})
    editor = server.grant("editor", "edited")
    assert server.send("GET", SECRETS, who=editor).status == 403
    # Addresses that are mapped into IPv6 are no addresses of pods in the first place: test_kinds.py.
    for address in (network_address(), "::1", "127.0.0.1"):
        pod = add_pod(server, address, "edited")
        path = proxy(pod, server.port, SECRETS, scheme="https", namespace="edited")
        assert_refused(server.send("GET", path, who=editor))
        binding = {
            "metadata": {"name": f"mine-{pod}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "editor"}],
        }
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        path = proxy(pod, server.port, bindings, scheme="https", namespace="edited")
        assert_refused(server.send("POST", path, binding, who=editor))
        assert server.send("GET", f"{bindings}/mine-{pod}").status == 404


def test_nor_through_a_service(open_server: Server) -> None:
    server, address = open_server, network_address()
    pod = add_pod(server, address)
    ports = [{"name": "https", "port": 443, "targetPort": server.port}]
    server.create("/api/v1/namespaces/default/services", {"metadata": {"name": "own"}, "spec": {"ports": ports}})
    endpoint: dict[str, Any] = {"addresses": [address], "conditions": {"ready": True}}
    slice_ = {
        "metadata": {"name": "own-1", "labels": {"kubernetes.io/service-name": "own"}},
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [{"name": "https", "port": server.port}],
    }
    path = f"/api/v1/namespaces/default/services/https:own:https/proxy{SECRETS}"
    stored = server.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice_)
    # An address that no pod has is nobody's word but that of whoever wrote the slice.
    assert server.send("GET", path).status == 503
    endpoint["targetRef"] = {"kind": "Pod", "name": pod, "namespace": "default"}
    stored["endpoints"] = [endpoint]
    own = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/own-1"
    assert server.send("PUT", own, stored).status == 200
    assert_refused(server.send("GET", path))
    assert_refused(server.send("GET", path.replace(":https/", ":443/")))
    assert server.send("GET", path.replace(":https/", f":{server.port}/")).status == 503


def test_nor_through_a_node_that_says_its_kubelet_is_there(open_server: Server) -> None:
    server = open_server
    name, agent = add_node(server, network_address(), server.port)
    pod = add_pod(server, "", node=name)
    for address in (network_address(), "127.0.0.1", "::ffff:127.0.0.1", "10.96.0.1"):
        port = 443 if address == "10.96.0.1" else server.port
        move_node(server, name, agent, address, port)
        assert_refused(server.send("GET", log(pod)))
        assert_refused(server.send("GET", f"/api/v1/nodes/{name}/proxy{SECRETS}"))
        assert_refused(server.send("GET", f"/api/v1/nodes/https:{name}:{port}/proxy{SECRETS}"))


def test_nor_where_the_server_listens_on_a_loopback_address_and_nodes_may_be_there(server: Server) -> None:
    name, agent = add_node(server, "127.0.0.1", server.port)
    pod = add_pod(server, "", node=name)
    for address in ("127.0.0.1", "127.0.0.7", "::1", "::ffff:127.0.0.1", network_address()):
        move_node(server, name, agent, address, server.port)
        assert_refused(server.send("GET", log(pod)))
    move_node(server, name, agent, "localhost", server.port, "Hostname")
    assert_refused(server.send("GET", log(pod)))


def test_the_certificate_for_kubelets_opens_nothing_at_the_server(server: Server) -> None:
    """Were a server led to itself all the same, or to another one of the same authority, it would be let in by none."""
    name, _ = add_node(server, "127.0.0.1", 1)
    assert server.send("GET", log(add_pod(server, "", node=name))).status == 503
    folder = server.folder / "data" / "pki"
    pair = KeyPair(*((folder / f"apiserver-kubelet-client.{kind}").read_bytes() for kind in ("crt", "key")))
    assert server.send("GET", "/version", who=pair).status == 401
    assert (
        server.send("GET", "/version", who=server.user("kube-apiserver-kubelet-client", "system:masters")).status == 401
    )


@pytest.mark.parametrize("address", THIS_MACHINE)
def test_pods_are_not_at_this_machine_however_that_is_written(both: Both, namespace: str, address: str) -> None:
    for server in both.every:
        try:
            name = add_pod(server, address, namespace)
        except AssertionError as error:
            # Refused before anybody could be led there.
            assert "podIPs" in str(error)
            continue
        answer = server.send("GET", proxy(name, 80, namespace=namespace))
        # kube-apiserver looks at what it dials, and not at what is inside.
        if server is both.allot or address not in ("::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"):
            assert_refused(answer)


def test_a_refusal_says_what_to_do_instead(server: Server) -> None:
    answer = server.send("GET", proxy(add_pod(server, "127.0.0.1"), 80))
    assert answer.message == (
        "address not allowed: 127.0.0.1 is a loopback address; use kubectl port-forward, which goes through the node"
    )


@pytest.mark.parametrize("address", THIS_MACHINE)
def test_nodes_are_not_at_this_machine_either_unless_the_server_is_told_so(open_server: Server, address: str) -> None:
    name, _ = add_node(open_server, address, 10250)
    assert_refused(open_server.send("GET", log(add_pod(open_server, "", node=name))))
    assert_refused(open_server.send("GET", f"/api/v1/nodes/{name}/proxy/healthz"))


@pytest.mark.parametrize(
    "name", ["localhost", "127.1", "2130706433", "0x7f000001", "::1%lo", "fe80::1%lo", "a b", "x/y"]
)
def test_names_of_nodes_are_judged_by_what_they_resolve_to(open_server: Server, name: str) -> None:
    node, _ = add_node(open_server, name, 10250, "Hostname")
    answer = open_server.send("GET", log(add_pod(open_server, "", node=node)))
    assert answer.status in (400, 503)
    assert "not allowed" in answer.message or "not known" in answer.message


def test_a_kubelet_on_a_loopback_address_is_reached_where_that_is_allowed(server: Server) -> None:
    """All nodes of a server that listens on a loopback address are on its machine. Other ports of theirs stay closed."""
    with backend("127.0.0.1", authority=server.authority) as kubelet, backend("127.0.0.1") as other:
        node, _ = add_node(server, "127.0.0.1", kubelet.port)
        assert server.send("GET", log(add_pod(server, "", node=node))).body == b"hello"
        assert server.send("GET", f"/api/v1/nodes/{node}:{kubelet.port}/proxy/healthz").body == b"hello"
        assert_refused(server.send("GET", f"/api/v1/nodes/{node}:{other.port}/proxy/"))
        assert_refused(server.send("GET", f"/api/v1/nodes/http:{node}:{other.port}/proxy/"))
    assert len(kubelet.asked) == 2
    assert other.asked == []


def test_kubelets_are_verified_where_their_authority_is_known(tmp_path: Any) -> None:
    with allot_server(tmp_path) as first:
        authority = first.authority
    ca = tmp_path / "data" / "pki" / "ca.crt"
    stranger = type(authority).create(authority.certificate.not_valid_before_utc)
    with allot_server(tmp_path, ["--kubelet-certificate-authority", str(ca)]) as server:
        for signer, status in ((authority, 200), (stranger, 503)):
            with backend("127.0.0.1", authority=signer) as kubelet:
                node, _ = add_node(server, "127.0.0.1", kubelet.port)
                assert server.send("GET", log(add_pod(server, "", node=node))).status == status
                assert len(kubelet.asked) == (status == 200)


# --- credentials ---


def test_pods_and_services_get_no_credential_of_the_server_and_kubelets_one_of_few_rights(server: Server) -> None:
    address = network_address()
    with backend(address, authority=server.authority) as asked:
        pod = add_pod(server, address)
        assert server.send("GET", proxy(pod, asked.port, scheme="https")).body == b"hello"
        assert asked.asked.pop().subject == {}
        name, _ = add_node(server, address, asked.port)
        assert server.send("GET", log(add_pod(server, "", node=name))).body == b"hello"
        assert asked.asked.pop().subject == {"commonName": "kube-apiserver-kubelet-client"}
        assert server.send("GET", f"/api/v1/nodes/{name}/proxy/healthz").body == b"hello"
        assert asked.asked.pop().subject == {"commonName": "kube-apiserver-kubelet-client"}
    with backend(address, authority=server.authority) as other:
        assert server.send("GET", f"/api/v1/nodes/https:{name}:{other.port}/proxy/").body == b"hello"
        assert other.asked.pop().subject == {}


SECRET_HEADERS = {
    "Authorization": f"Bearer {ADMIN_TOKEN}",
    "Cookie": "session=secret-1",
    "Proxy-Authorization": "Basic secret-2",
    "X-Remote-User": "secret-3",
    "X-Remote-Group": "system:masters",
    "X-Remote-Extra-Scopes": "secret-4",
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Host": "secret-5",
    "X-Forwarded-Proto": "secret-6",
    "Forwarded": "for=secret-7",
    "X-Auth-Token": "secret-8",
    "X-Api-Key": "secret-9",
    "X-Amz-Security-Token": "secret-10",
    "Connection": "X-Named",
    "X-Named": "secret-11",
    "TE": "trailers",
    "Referer": "https://x/?token=secret-12",
}


@pytest.mark.parametrize("leads_to", ["pod", "kubelet"])
def test_nobodys_credentials_are_passed_on(server: Server, leads_to: str) -> None:
    address = network_address()
    is_pod = leads_to == "pod"
    with backend(address, authority=None if is_pod else server.authority) as asked:
        if is_pod:
            path = proxy(add_pod(server, address), asked.port)
        else:
            path = log(add_pod(server, "", node=add_node(server, address, asked.port)[0]))
        kept = {"Accept": "text/x-this", "User-Agent": "kubectl/x", "If-None-Match": '"tag"'}
        assert server.send("GET", path, who=None, headers={**SECRET_HEADERS, **kept}).body == b"hello"
        (request,) = asked.asked
    for word in (
        "secret",
        ADMIN_TOKEN,
        "authorization",
        "cookie",
        "x-remote",
        "system:masters",
        "forwarded: ",
        "203.0.113",
    ):
        assert not request.has(word), request.head
    for name in ("x-named", "referer", "te:", "x-api-key", "proxy-"):
        assert not request.has(name), request.head
    for name, value in kept.items():
        assert request.has(f"\r\n{name}: {value}\r\n")
    assert request.has("\r\nX-Forwarded-For: 127.0.0.1\r\n")


def test_tokens_among_websocket_protocols_stay_at_the_server(server: Server) -> None:
    address = network_address()
    token = urlsafe_b64encode(ADMIN_TOKEN.encode()).decode().rstrip("=")
    upgraded = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSet-Cookie: a=b\r\n\r\nsaid"
    with backend(address, upgraded, server.authority) as asked:
        pod = add_pod(server, "", node=add_node(server, address, asked.port)[0])
        head = (
            f"GET /api/v1/namespaces/default/pods/{pod}/exec?command=sh&stdout=1 HTTP/1.1\r\nHost: x\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
            f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, v5.channel.k8s.io\r\n\r\n"
        )
        said = server.raw(head.encode())
        (request,) = asked.asked
    assert said.startswith(b"HTTP/1.1 101 ") and said.endswith(b"said"), said
    assert b"Set-Cookie" not in said
    assert request.has("\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n")
    assert not request.has(token) and not request.has("bearer")


# --- rights ---


def test_who_may_only_read_runs_no_commands_through_a_websocket(both: Both, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/exec", "pods/attach", "pods/portforward"], "verbs": ["get"]}]
    group = "/apis/rbac.authorization.k8s.io/v1/namespaces"
    reader = f"reader-of-{namespace}"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": reader}
    both.create(f"{group}/{namespace}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    binding = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    both.create(f"{group}/{namespace}/rolebindings", binding)
    for server in both.every:
        server.wait_until_allowed(reader, namespace, "get", "", "pods/exec")
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "eA==",
    }
    for subresource in ("exec", "attach", "portforward"):
        path = f"/api/v1/namespaces/{namespace}/pods/any/{subresource}?command=sh&ports=80"
        assert both.send("GET", path, who=both.user(reader), headers=headers).status == 403


@pytest.mark.parametrize("protocol", ["h2c", "tcp", "HTTP/2.0", "websocket, h2c"])
def test_kubelets_are_asked_to_change_to_no_protocol_but_theirs(server: Server, protocol: str) -> None:
    """In another one, more could be asked of them in the server's name."""
    with backend("127.0.0.1", authority=server.authority) as kubelet:
        pod = add_pod(server, "", node=add_node(server, "127.0.0.1", kubelet.port)[0])
        headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": protocol, "HTTP2-Settings": "AAMAAABkAAQAAP__"}
        for subresource in ("exec", "log"):
            path = f"/api/v1/namespaces/default/pods/{pod}/{subresource}"
            assert server.send("GET", path, headers=headers).status == 400
    assert kubelet.asked == []


def test_a_request_that_changes_the_protocol_brings_no_other_request_along(server: Server) -> None:
    with backend("127.0.0.1", authority=server.authority) as kubelet:
        pod = add_pod(server, "", node=add_node(server, "127.0.0.1", kubelet.port)[0])
        headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
        inner = b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n"
        path = f"/api/v1/namespaces/default/pods/{pod}/exec?command=sh"
        assert server.send("POST", path, inner, headers=headers).status == 400
        # A kubelet that does not want to change gets nothing more.
        said = server.send("POST", path, headers=headers)
        assert (said.status, b"invalid upgrade response: status code 200" in said.body) == (503, True)
        assert len(kubelet.asked) == 1


def test_exec_without_a_change_of_protocol_is_refused(both: Both, namespace: str) -> None:
    for server in both.every:
        node, _ = add_node(server, "192.0.2.77", 10250)
        pod = add_pod(server, "", namespace, node)
        answer = server.send("POST", f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?command=sh&container=main")
        assert (answer.status, answer.message) == (400, "Upgrade request required")


# --- names, paths, and what comes back ---


@pytest.mark.parametrize(
    ("name", "status"),
    [
        *(("ftp:{}:80", 400), ("a:b:{}:80", 400), (":80", 400), ("http::80", 400), ("file:{}:", 400)),
        *(("{}:80:http", 400), ("{}:99999", 503), ("{}:0x50", 503), ("{}:-1", 503), ("missing", 404), ("{}:²", 503)),
    ],
)
def test_names_are_split_as_kube_apiserver_splits_them(both: Both, namespace: str, name: str, status: int) -> None:
    answers = []
    # kube-apiserver ends the connection where a port cannot be part of a URL.
    servers = (both.allot,) if name in ("{}:0x50", "{}:-1", "{}:²") else both.every
    for server in servers:
        pod = add_pod(server, "192.0.2.77", namespace)
        path = proxy("NAME", "", namespace=namespace).replace("NAME:", name.format(pod).replace("²", "%C2%B2"))
        answers.append(server.send("GET", path).status)
    assert answers == [status] * len(answers)


def test_a_pod_without_an_address_cannot_be_reached(both: Both, namespace: str) -> None:
    for server in both.every:
        assert server.send("GET", proxy(add_pod(server, "", namespace), 80, namespace=namespace)).status == 400


def test_a_service_has_only_endpoints_that_are_pods_of_its_namespace(both: Both, namespace: str) -> None:
    services = f"/api/v1/namespaces/{namespace}/services"
    both.create(services, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    endpoint = {"addresses": ["192.0.2.77"], "conditions": {"ready": True}}
    slice_ = {
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": [endpoint, {**endpoint, "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}],
        "ports": [{"name": "", "port": 80}],
    }
    both.create(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", slice_)
    for name in ("s", "s:80", "s:81", "s:none", "http:s:80"):
        assert both.send("GET", f"{services}/{name}/proxy/").status == 503
    assert both.send("GET", f"{services}/ftp:s:80/proxy/").status == 400
    assert both.send("GET", f"{services}/missing:80/proxy/").status == 404


PATHS = {
    "/a/b": "/a/b",
    "/a/b/": "/a/b/",
    "/": "/",
    "/a%20b?x=1&y=%0d%0aHost:%20evil": "/a%20b?x=1&y=%0D%0AHost%3A+evil",
    "/%252e%252e/x": "/%252e%252e/x",
    "/a;b": "/a%3Bb",
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_arrive_as_they_were_meant(server: Server, path: str) -> None:
    address = network_address()
    with backend(address) as asked:
        assert server.send("GET", proxy(add_pod(server, address), asked.port, path)).status == 200
        (request,) = asked.asked
    assert request.head.split(b"\r\n")[0] == f"GET {PATHS[path]} HTTP/1.1".encode()
    assert request.head.lower().count(b"host:") == 1 + request.head.lower().count(b"-host:")


@pytest.mark.parametrize("path", ["/../x", "/%2e%2e/x", "/..%2fx", "/a%2fb", "/a%0d%0aHost:%20evil", "/%00", "/a%7f"])
def test_paths_that_could_be_two_are_refused(server: Server, path: str) -> None:
    address = network_address()
    with backend(address) as asked:
        pod = add_pod(server, address)
        request = (
            f"GET {proxy(pod, asked.port, path)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
        )
        assert server.raw(request.encode()).split(b" ")[1] == b"400"
        assert asked.asked == []


def test_a_proxied_root_is_led_to_its_slash(both: Both, namespace: str) -> None:
    for server in both.every:
        path = proxy(add_pod(server, "192.0.2.77", namespace), 80, "", namespace=namespace)
        answer = server.send("GET", f"{path}?a=b")
        assert (answer.status, answer.headers["Location"]) == (301, f"{path}/?a=b")


@pytest.mark.parametrize(
    ("location", "told"),
    [
        *(("/login?x=1", "{}/login?x=1"), ("http://{host}/in", "{}/in"), ("relative", "relative")),
        *(("http://127.0.0.1:6443/api", "http://127.0.0.1:6443/api"), ("javascript:alert(1)", None)),
    ],
)
def test_redirects_are_told_and_not_followed(server: Server, location: str, told: str | None) -> None:
    address = network_address()
    with backend(address) as other:
        place = f"{address}:{other.port}"
        sent = location.format(host=place)
        answer = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + sent.encode() + b"\r\n\r\n"
        other._answer = answer
        path = proxy(add_pod(server, address), other.port, "")
        said = server.send("GET", f"{path}/")
        assert (said.status, said.headers["Location"]) == (302, told.format(path) if told else None)
        assert len(other.asked) == 1


def test_a_kubelet_leads_the_server_nowhere_else(server: Server) -> None:
    with backend("127.0.0.1") as target:
        where = f"http://127.0.0.1:{target.port}/".encode()
        moved = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + where + b"\r\nContent-Length: 0\r\n\r\n"
        with backend("127.0.0.1", moved, server.authority) as kubelet:
            pod = add_pod(server, "", node=add_node(server, "127.0.0.1", kubelet.port)[0])
            answer = server.send("GET", log(pod))
            assert (answer.status, "redirect" in answer.message) == (503, True)
            headers = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
            path = f"/api/v1/namespaces/default/pods/{pod}/exec?command=sh"
            assert server.send("POST", path, headers=headers).status == 503
        assert target.asked == []


def test_what_a_pod_answers_is_not_taken_for_the_servers_word(server: Server) -> None:
    """Pages of pods come from the server's origin, as upstream's do: they set no cookies for it and open it to no other."""
    address = network_address()
    kept = {"Content-Type": "text/html", "ETag": '"tag"', "Content-Disposition": "attachment", "Vary": "Accept"}
    dropped = {
        "Set-Cookie": "session=stolen",
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Allow-Credentials": "true",
        "WWW-Authenticate": "Basic realm=kubernetes",
        "Strict-Transport-Security": "max-age=0",
        "Clear-Site-Data": '"*"',
        "Warning": '299 - "do as I say"',
        "Audit-Id": "mine",
        "Connection": "keep-alive",
        "Service-Worker-Allowed": "/",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**kept, **dropped}.items())
    with backend(address, f"HTTP/1.1 401 No\r\nContent-Length: 2\r\n{lines}\r\nhi".encode()) as asked:
        answer = server.send("GET", proxy(add_pod(server, address), asked.port))
    assert (answer.status, answer.body) == (401, b"hi")
    assert {name: answer.headers[name] for name in kept} == kept
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    for name, value in dropped.items():
        assert answer.headers.get(name) != value


OK = b"HTTP/1.1 200 OK\r\n"
MALFORMED = {
    "a superscript length": OK + "Content-Length: ²\r\n\r\n".encode() + b"hi",
    "a negative length": OK + b"Content-Length: -2\r\n\r\nhi",
    "a signed length": OK + b"Content-Length: +2\r\n\r\nhi",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhii",
    "length and chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "an unknown coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a folded header": OK + b"X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nhi",
    "a header with a blank": OK + b"Content-Length : 2\r\n\r\nhi",
    "a bare line end": OK + b"X-A: b\nSet-Cookie: c\r\nContent-Length: 2\r\n\r\nhi",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 2\r\n\r\nhi",
    "a status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nhi",
    "a superscript status": "HTTP/1.1 20² OK\r\nContent-Length: 2\r\n\r\nhi".encode(),
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "an unwanted change": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
    "nothing but promises": b"HTTP/1.1 100 Continue\r\n\r\n" * 10,
    "nothing": b"",
    "a head without end": OK + b"X: " + b"a" * 100_000,
}


@pytest.mark.parametrize("said", MALFORMED)
def test_an_answer_that_could_be_two_is_none(server: Server, said: str) -> None:
    address = network_address()
    with backend(address, MALFORMED[said]) as asked:
        answer = server.send("GET", proxy(add_pod(server, address), asked.port))
    assert answer.status == 503
    assert "error trying to reach service" in answer.message


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BROKEN = {
    "a cut body": OK + b"Content-Length: 10\r\n\r\nhi",
    "a negative chunk": CHUNKED + b"2\r\nhi\r\n-2\r\nhi\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"2\r\nhi\r\n0x2\r\nhi\r\n0\r\n\r\n",
    "a chunk with underscores": CHUNKED + b"2\r\nhi\r\n0_2\r\nhi\r\n0\r\n\r\n",
    "a chunk that is longer than it says": CHUNKED + b"2\r\nhi\r\n2\r\nhiXX\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"2\r\nhi\r\n\r\n0\r\n\r\n",
    "a huge chunk": CHUNKED + b"2\r\nhi\r\n" + b"f" * 40 + b"\r\nhi",
    "a cut chunk": CHUNKED + b"ff\r\nhi",
    "no last chunk": CHUNKED + b"2\r\nhi\r\n",
    "endless trailers": CHUNKED + b"2\r\nhi\r\n0\r\n" + b"X: y\r\n" * 1000,
}


@pytest.mark.parametrize("said", BROKEN)
def test_an_answer_that_breaks_off_is_not_taken_for_whole(server: Server, said: str) -> None:
    address = network_address()
    with backend(address, BROKEN[said]) as asked:
        path = proxy(add_pod(server, address), asked.port)
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
        answer = server.raw(request.encode())
    assert not answer.endswith(b"\r\n0\r\n\r\n"), answer


@pytest.mark.parametrize(
    "said",
    [
        OK + b"Content-Length: 5\r\n\r\nhello and more",
        CHUNKED + b"2\r\nhe\r\n3;name=value\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        OK + b"\r\nhello",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200\r\n\r\nhello",
    ],
)
def test_every_form_of_a_good_answer_is_passed_on(server: Server, said: bytes) -> None:
    address = network_address()
    with backend(address, said) as asked:
        answer = server.send("GET", proxy(add_pod(server, address), asked.port))
    assert (answer.status, answer.body) == (200, b"hello")


def test_links_of_a_page_lead_through_the_server_and_options_are_asked(server: Server) -> None:
    address = network_address()
    said = b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<a href="/rewriteme">test</a>'
    with backend(address, said) as asked:
        pod = add_pod(server, address)
        path = proxy(pod, asked.port)
        assert server.send("GET", path).body == f'<a href="{path.rstrip("/")}/rewriteme">test</a>'.encode()
        assert server.send("OPTIONS", path).status == 200
        assert asked.asked[-1].head.startswith(b"OPTIONS / HTTP/1.1\r\n")
        assert server.send("OPTIONS", f"/api/v1/namespaces/default/pods/{pod}/exec").status == 405
