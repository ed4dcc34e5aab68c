"""kubeconfig files: merging, what a context stands for, and what is said when something is wrong."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.client.connection import Impersonation
from allot.client.kubeconfig import (
    Kubeconfig,
    KubeconfigError,
    connection_from_environment,
    in_cluster_connection,
    kubeconfig_paths,
    load_kubeconfig,
)


def document(
    *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **context: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://example.com:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", **context}}],
    }


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value))
    return path


def test_scalars_are_read_by_the_rules_of_kubernetes(tmp_path: Path) -> None:
    text = yaml.safe_dump(document(user={"token": "TOKEN"})).replace("TOKEN", "2026-01-02T03:04:05Z")
    connection = load_kubeconfig([write(tmp_path / "config", text)]).connection()
    assert connection.token == "2026-01-02T03:04:05Z"


def test_a_context_stands_for_a_server_and_a_user(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("ca")
    (tmp_path / "token").write_text("t")
    path = write(
        tmp_path / "config",
        document(
            cluster={
                "certificate-authority": "ca.pem",
                "tls-server-name": "other.example.com",
                "proxy-url": "http://proxy:3128",
                "disable-compression": True,
            },
            user={
                "client-certificate-data": base64.b64encode(b"cert").decode(),
                "client-key-data": base64.b64encode(b"key").decode(),
                "tokenFile": "token",
                "as": "jane",
                "as-uid": "7",
                "as-groups": ["a", "b"],
                "as-user-extra": {"x/y": ["1", "2"]},
            },
            namespace="team",
        ),
    )
    found = load_kubeconfig([path]).connection()
    assert found.server == "https://example.com:6443"
    assert found.namespace == "team"
    # Relative to the file, not to where the process runs.
    assert found.ca_file == tmp_path / "ca.pem"
    assert found.token_file == tmp_path / "token"
    assert (found.client_certificate_data, found.client_key_data) == (b"cert", b"key")
    assert (found.tls_server_name, found.proxy_url) == ("other.example.com", "http://proxy:3128")
    assert found.disable_compression
    assert found.impersonation == Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"x/y": ("1", "2")})
    assert found.impersonation.headers() == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-x%2Fy", "1"),
        ("Impersonate-Extra-x%2Fy", "2"),
    )
    assert found.source == f"kubeconfig {path}, context 'c'"


def test_of_several_files_the_first_to_name_something_counts(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first",
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://first"}}],
            "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}],
        },
    )
    second = write(tmp_path / "second", {**document(cluster={"server": "https://second"}), "current-context": "mine"})
    merged = load_kubeconfig([first, tmp_path / "absent", second])
    assert merged.contexts == ("c", "mine")
    assert merged.current_context == "mine"
    assert merged.connection().server == "https://first"
    assert merged.connection("c").server == "https://first"


def test_files_are_found_as_kubectl_finds_them(tmp_path: Path) -> None:
    assert kubeconfig_paths({"KUBECONFIG": "/a::/b:/a", "HOME": "/h"}) == [Path("/a"), Path("/b")]
    assert kubeconfig_paths({"HOME": "/h"}) == [Path("/h/.kube/config")]
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", document())
    assert connection_from_environment({"HOME": str(tmp_path)}).server == "https://example.com:6443"
    with pytest.raises(KubeconfigError, match="nowhere: No such file"):
        connection_from_environment({"HOME": str(tmp_path)}, kubeconfig=tmp_path / "nowhere")
    with pytest.raises(KubeconfigError, match=r"no kubeconfig found: checked /nowhere/\.kube/config"):
        connection_from_environment({"HOME": "/nowhere"})


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeconfigError, match="service account token"):
        in_cluster_connection(environ, tmp_path)
    for name, text in (("token", "secret\n"), ("ca.crt", "pem"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    found = connection_from_environment(environ, service_account_directory=tmp_path)
    assert (found.server, found.namespace) == ("https://[fd00::1]:443", "team")
    assert (found.token_file, found.ca_file) == (tmp_path / "token", tmp_path / "ca.crt")
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set"):
        in_cluster_connection({}, tmp_path)


EXEC = {"command": "plugin", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}


def test_an_exec_plugin_is_read(tmp_path: Path) -> None:
    extension = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}]
    user = {"exec": {**EXEC, "command": "./bin/plugin", "args": ["-a"], "env": [{"name": "A", "value": "b"}]}}
    path = write(tmp_path / "config", document(cluster={"extensions": extension}, user=user))
    plugin = load_kubeconfig([path]).connection().exec
    assert plugin is not None
    assert plugin.command == str(tmp_path / "bin/plugin")
    assert (plugin.args, plugin.env) == (("-a",), (("A", "b"),))
    assert plugin.cluster_config == {"audience": "x"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{", "not YAML"),
        ("- a", "document: expected a mapping, got a list"),
        ({"current-context": "x"}, "context 'x' does not exist, expected one of: none is defined"),
        ({"clusters": {}}, "clusters: expected a list, got a mapping"),
        ({"clusters": [None]}, "clusters[0]: expected a mapping, got nothing"),
        ({"clusters": [{"name": ""}]}, "clusters[0].name: expected a name"),
        ({"users": [{"name": "u"}, {"name": "u"}]}, "users[1].name: user 'u' is defined twice"),
        ({**document(), "current-context": ""}, "no current-context is set and none was named, expected one of c"),
        ({**document(), "clusters": []}, "contexts[c].context.cluster: cluster 'c' of context 'c' does not exist"),
        ({**document(), "users": []}, "contexts[c].context.user: user 'u' of context 'c' does not exist"),
        (document(user="x"), "users[u].user: expected a mapping, got text"),  # type: ignore[arg-type]
        (document(cluster={"server": 5}), "clusters[c].cluster.server: expected text, got a number"),
        (document(cluster={"server": ""}), "clusters[c].cluster.server: expected the address of the API server"),
        (document(cluster={"server": "ftp://x"}), "clusters[c].cluster.server: invalid address 'ftp://x'"),
        (document(cluster={"server": "https://x:notaport"}), "clusters[c].cluster.server: invalid address"),
        (document(cluster={"certificate-authority-data": "%"}), "certificate-authority-data: expected base64"),
        (
            document(cluster={"certificate-authority": "/no/ca"}),
            "certificate-authority: cannot read /no/ca: No such file",
        ),
        (
            document(cluster={"insecure-skip-tls-verify": True, "certificate-authority-data": "eA=="}),
            "insecure-skip-tls-verify: a certificate authority is also set",
        ),
        (
            document(cluster={"insecure-skip-tls-verify": "yes"}),
            "insecure-skip-tls-verify: expected true or false, got text",
        ),
        (document(cluster={"proxy-url": "gopher://x"}), "proxy-url: invalid address 'gopher://x'"),
        (
            document(cluster={"proxy-url": "socks5://x"}),
            "proxy-url: socks5 proxies such as 'socks5://x' are not supported",
        ),
        (
            document(user={"username": "a", "password": "b"}),
            "users[u].user.username: user name and password are not supported",
        ),
        (document(user={"password": "b"}), "users[u].user.password: user name and password are not supported"),
        (
            document(user={"auth-provider": {"name": "gcp"}}),
            "users[u].user.auth-provider: auth providers are not supported",
        ),
        (document(user={"token": 5}), "users[u].user.token: expected text, got a number"),
        (document(user={"tokenFile": "/no/token"}), "users[u].user.tokenFile: cannot read /no/token"),
        (document(user={"client-certificate-data": "eA=="}), "users[u].user.client-key: expected client-key"),
        (document(user={"as-groups": ["x"]}), "users[u].user.as: expected a user to impersonate"),
        (document(user={"as": "x", "as-groups": [5]}), "users[u].user.as-groups[0]: expected text"),
        (
            document(user={"as": "x", "as-groups": ["a\r\nb"]}),
            "users[u].user.as: expected text without control characters",
        ),
        (document(user={"exec": {}}), "users[u].user.exec.command: expected a command"),
        (document(user={"exec": {**EXEC, "apiVersion": "v1alpha1"}}), "exec.apiVersion: invalid value 'v1alpha1'"),
        (
            document(user={"exec": {**EXEC, "interactiveMode": "Always"}}),
            "exec.interactiveMode: the plugin needs a terminal",
        ),
        (document(user={"exec": {**EXEC, "interactiveMode": ""}}), "exec.interactiveMode: invalid value ''"),
        (
            document(user={"exec": {**EXEC, "env": [{"value": "x"}]}}),
            "exec.env[0].name: expected the name of a variable",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_and_field(tmp_path: Path, value: Any, told: str) -> None:
    path = write(tmp_path / "config", value)
    with pytest.raises(KubeconfigError) as error:
        load_kubeconfig([path]).connection()
    assert told in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_wrong_elsewhere_hurts_nobody(tmp_path: Path) -> None:
    value = document()
    value["users"].append({"name": "old", "user": {"username": "x"}})
    assert load_kubeconfig([write(tmp_path / "config", value)]).connection().server == "https://example.com:6443"


def test_secrets_are_in_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document(user={"token": "hush"}))
    assert "hush" not in repr(load_kubeconfig([path]).connection())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
fields = st.sampled_from(
    [
        "server",
        "proxy-url",
        "certificate-authority-data",
        "token",
        "exec",
        "as",
        "as-user-extra",
        "extensions",
        "client-key",
    ]
)


@pytest.mark.slow
@settings(max_examples=150)
@given(cluster=st.dictionaries(fields, json_values, max_size=3), user=st.dictionaries(fields, json_values, max_size=3))
def test_no_value_anywhere_is_more_than_an_error(cluster: dict[str, Any], user: dict[str, Any]) -> None:
    merged = Kubeconfig([Path("/x")])
    try:
        merged.add(Path("/x"), document(cluster=cluster, user=user))
        merged.connection()
    except KubeconfigError as error:
        assert str(error).startswith("kubeconfig /x: ")
