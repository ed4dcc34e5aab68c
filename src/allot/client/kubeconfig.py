"""kubeconfig files: finds and merges them, and builds the connection of a context.

Reads only what the chosen context needs, so a broken entry elsewhere does not matter. Every error names the file,
the entry and the field. Authentication methods that Kubernetes removed (passwords, auth providers) are refused by name.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from allot.client.connection import Connection, ExecPlugin, Impersonation
from allot.yaml_values.reader import NotYAML, read_yaml

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EXEC_CLUSTER_EXTENSION = "client.authentication.k8s.io/exec"

_FILE_BYTES_MAX = 16 << 20
_PROXY_SCHEMES = ("http", "https", "socks5")


class KubeconfigError(Exception):
    """A kubeconfig, or a file that it names, cannot be used. The text names the file, entry, field and reason."""


# --- where ---


def connection_from_environment(
    environ: Mapping[str, str],
    *,
    kubeconfig: Path | None = None,
    context: str = "",
    service_account_directory: Path = SERVICE_ACCOUNT_DIRECTORY,
) -> Connection:
    """The connection that kubectl would use: a given file, else $KUBECONFIG, else ~/.kube/config, else in-cluster."""
    if kubeconfig is not None:
        return load_kubeconfig([kubeconfig], must_exist=True).connection(context)
    paths = kubeconfig_paths(environ)
    loaded = load_kubeconfig(paths)
    if not loaded.is_empty or context:
        return loaded.connection(context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_connection(environ, service_account_directory)
    looked = ", ".join(str(path) for path in paths)
    raise KubeconfigError(f"no kubeconfig found: checked {looked}, and this is not a pod of a cluster")


def kubeconfig_paths(environ: Mapping[str, str]) -> list[Path]:
    """The files to read, in order of precedence."""
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return list(dict.fromkeys(named))
    home = environ.get("HOME", "")
    return [Path(home) / ".kube" / "config"] if home else []


def in_cluster_connection(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> Connection:
    """The connection of a pod: its service account's token and the address in its environment."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeconfigError(
            "in-cluster configuration: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set, "
            f"got {host!r} and {port!r}"
        )
    token_file, ca_file = directory / "token", directory / "ca.crt"
    if not _read(token_file, "in-cluster configuration: service account token").strip():
        raise KubeconfigError(f"in-cluster configuration: service account token {token_file} is empty")
    namespace_file = directory / "namespace"
    namespace = ""
    if namespace_file.is_file():
        namespace = _read(namespace_file, "in-cluster configuration: namespace").decode(errors="replace").strip()
    return Connection(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace or "default",
        source=f"in-cluster configuration in {directory}",
        ca_file=ca_file if ca_file.is_file() else None,
        token_file=token_file,
    )


# --- what ---


class _Entry(msgspec.Struct, frozen=True):
    """A named cluster, user or context, and its file."""

    file: Path
    place: str
    value: Any

    def fields(self) -> _Fields:
        return _Fields(self.file, self.place, self.value)


class Kubeconfig:
    """One or several files as one. For entries with the same name, the first file wins."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self.current_context = ""
        self._clusters: dict[str, _Entry] = {}
        self._users: dict[str, _Entry] = {}
        self._contexts: dict[str, _Entry] = {}

    @property
    def is_empty(self) -> bool:
        """Whether all files are empty."""
        return not (self._clusters or self._users or self._contexts or self.current_context)

    @property
    def contexts(self) -> tuple[str, ...]:
        """The names of all contexts."""
        return tuple(sorted(self._contexts))

    def add(self, file: Path, document: Any) -> None:
        """Merge a file of lower precedence than those before it."""
        top = _Fields(file, "", {} if document is None else document)
        if not self.current_context:
            self.current_context = top.text("current-context")
        for entries, list_name, entry_name in (
            (self._clusters, "clusters", "cluster"),
            (self._users, "users", "user"),
            (self._contexts, "contexts", "context"),
        ):
            for name, entry in _named_entries(top, list_name, entry_name).items():
                entries.setdefault(name, entry)

    def connection(self, context: str = "") -> Connection:
        """The connection of a context, by default the current one."""
        name = context or self.current_context
        where = ", ".join(str(path) for path in self.paths) or "none"
        if not name:
            known = f", expected one of {', '.join(self.contexts)}" if self._contexts else ""
            raise KubeconfigError(f"kubeconfig {where}: no current-context is set and none was named{known}")
        if name not in self._contexts:
            known = ", ".join(self.contexts) or "none is defined"
            raise KubeconfigError(f"kubeconfig {where}: context {name!r} does not exist, expected one of: {known}")
        chosen = self._contexts[name].fields()
        cluster = self._referenced(chosen, name, "cluster", self._clusters)
        user = self._referenced(chosen, name, "user", self._users)
        return _connection(chosen, name, cluster, user)

    def _referenced(self, context: _Fields, name: str, field: str, entries: Mapping[str, _Entry]) -> _Fields:
        target = context.text(field)
        if not target:
            raise context.error(field, f"expected the name of a {field} for context {name!r}")
        if target not in entries:
            known = ", ".join(sorted(entries)) or "none is defined"
            raise context.error(
                field, f"{field} {target!r} of context {name!r} does not exist, expected one of: {known}"
            )
        return entries[target].fields()


def load_kubeconfig(paths: Sequence[Path], *, must_exist: bool = False) -> Kubeconfig:
    """Read and merge files; missing ones are skipped unless required."""
    merged = Kubeconfig(paths)
    for path in paths:
        if not must_exist and not path.exists():
            continue
        data = _read(path, "kubeconfig")
        try:
            document = read_yaml(data)
        except NotYAML as error:
            raise KubeconfigError(f"kubeconfig {path}: not YAML: {' '.join(str(error).split())}") from error
        merged.add(path, document)
    return merged


# --- fields ---


class _Fields:
    """A mapping of a kubeconfig, read field by field with precise errors."""

    def __init__(self, file: Path, place: str, value: Any) -> None:
        self.file = file
        self.place = place
        if not isinstance(value, dict):
            raise KubeconfigError(f"kubeconfig {file}: {place or 'document'}: expected a mapping, got {_told(value)}")
        self._value = value

    def error(self, field: str, text: str) -> KubeconfigError:
        place = f"{self.place}.{field}" if self.place else field
        return KubeconfigError(f"kubeconfig {self.file}: {place}: {text}")

    def has(self, field: str) -> bool:
        return self._value.get(field) is not None

    def raw(self, field: str) -> Any:
        return self._value.get(field)

    def text(self, field: str) -> str:
        value = self._value.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(field, f"expected text, got {_told(value)}; put it in quotes")
        return value

    def flag(self, field: str) -> bool:
        value = self._value.get(field)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.error(field, f"expected true or false, got {_told(value)}")
        return value

    def data(self, field: str) -> bytes:
        value = self.text(field)
        try:
            return base64.b64decode("".join(value.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.error(field, f"expected base64: {error}") from error

    def path(self, field: str) -> Path | None:
        """A file; relative paths are relative to the kubeconfig's directory."""
        value = self.text(field)
        return self.file.absolute().parent / value if value else None

    def items(self, field: str) -> list[Any]:
        value = self._value.get(field)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(field, f"expected a list, got {_told(value)}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        for index, item in enumerate(self.items(field)):
            if not isinstance(item, str):
                raise self.error(f"{field}[{index}]", f"expected text, got {_told(item)}; put it in quotes")
        return tuple(self.items(field))

    def child(self, field: str) -> _Fields:
        return self.at(field, self._value.get(field))

    def at(self, field: str, value: Any) -> _Fields:
        """A nested mapping, such as an item of a list."""
        return _Fields(self.file, f"{self.place}.{field}" if self.place else field, value)


def _named_entries(top: _Fields, list_name: str, entry_name: str) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for index, item in enumerate(top.items(list_name)):
        fields = top.at(f"{list_name}[{index}]", item)
        name = fields.text("name")
        if not name:
            raise fields.error("name", "expected a name")
        if name in entries:
            raise fields.error("name", f"{entry_name} {name!r} is defined twice")
        value = fields.raw(entry_name)
        entries[name] = _Entry(top.file, f"{list_name}[{name}].{entry_name}", {} if value is None else value)
    return entries


def _connection(context: _Fields, name: str, cluster: _Fields, user: _Fields) -> Connection:
    certificate_data, certificate_file = user.data("client-certificate-data"), user.path("client-certificate")
    key_data, key_file = user.data("client-key-data"), user.path("client-key")
    if (certificate_data or certificate_file) and not (key_data or key_file):
        raise user.error("client-key", "expected client-key or client-key-data to go with the client certificate")
    ca_data, ca_file = cluster.data("certificate-authority-data"), cluster.path("certificate-authority")
    insecure = cluster.flag("insecure-skip-tls-verify")
    if insecure and (ca_data or ca_file):
        raise cluster.error("insecure-skip-tls-verify", "a certificate authority is also set: expected one of the two")
    _refuse_old_ways(user)
    for fields, field, path in (
        (cluster, "certificate-authority", None if ca_data else ca_file),
        (user, "client-certificate", None if certificate_data else certificate_file),
        (user, "client-key", None if key_data else key_file),
    ):
        _check_readable(fields, field, path)
    token_file = user.path("tokenFile")
    if not user.text("token"):
        _check_readable(user, "tokenFile", token_file)
    return Connection(
        server=_server(cluster),
        namespace=context.text("namespace") or "default",
        source=f"kubeconfig {context.file}, context {name!r}",
        ca_data=ca_data,
        ca_file=ca_file,
        insecure_skip_tls_verify=insecure,
        tls_server_name=cluster.text("tls-server-name"),
        proxy_url=_proxy(cluster),
        disable_compression=cluster.flag("disable-compression"),
        client_certificate_data=certificate_data,
        client_certificate_file=certificate_file,
        client_key_data=key_data,
        client_key_file=key_file,
        token=user.text("token"),
        token_file=token_file,
        exec=_exec(user, cluster),
        impersonation=_impersonation(user),
    )


def _server(cluster: _Fields) -> str:
    server = cluster.text("server")
    if not server:
        raise cluster.error("server", "expected the address of the API server")
    if "://" not in server:
        server = f"http://{server}"
    try:
        parts = urlsplit(server)
        port_is_number = parts.port is None or parts.port >= 0
    except ValueError as error:
        raise cluster.error("server", f"invalid address {server!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_number:
        raise cluster.error("server", f"invalid address {server!r}: expected https://host:port")
    return server.rstrip("/")


def _proxy(cluster: _Fields) -> str:
    url = cluster.text("proxy-url")
    if not url:
        return ""
    scheme = url.partition("://")[0].lower()
    if scheme not in _PROXY_SCHEMES or "://" not in url:
        raise cluster.error("proxy-url", f"invalid address {url!r}: expected http://, https:// or socks5://")
    if scheme == "socks5":
        raise cluster.error(
            "proxy-url", f"socks5 proxies such as {url!r} are not supported: expected http:// or https://"
        )
    return url


def _refuse_old_ways(user: _Fields) -> None:
    if user.text("username") or user.text("password"):
        raise user.error(
            "username" if user.has("username") else "password",
            "user name and password are not supported (Kubernetes removed them in 1.19): "
            "expected a token, a client certificate or an exec plugin",
        )
    if user.has("auth-provider"):
        raise user.error(
            "auth-provider",
            "auth providers are not supported (Kubernetes removed most of them in 1.26): expected an exec plugin",
        )


def _exec(user: _Fields, cluster: _Fields) -> ExecPlugin | None:
    if not user.has("exec"):
        return None
    plugin = user.child("exec")
    command, api_version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise plugin.error("command", "expected a command")
    if api_version not in EXEC_API_VERSIONS:
        raise plugin.error("apiVersion", f"invalid value {api_version!r}: expected {' or '.join(EXEC_API_VERSIONS)}")
    mode = plugin.text("interactiveMode")
    if mode == "Always":
        raise plugin.error(
            "interactiveMode", "the plugin needs a terminal, but there is none: expected Never or IfAvailable"
        )
    if mode not in ("Never", "IfAvailable") and (mode or api_version == EXEC_API_VERSIONS[0]):
        raise plugin.error("interactiveMode", f"invalid value {mode!r}: expected Never, IfAvailable or Always")
    # A name with a slash is relative to the kubeconfig; a bare one is looked up in PATH.
    if "/" in command and not Path(command).is_absolute():
        command = str(plugin.file.absolute().parent / command)
    extensions = {
        entry.get("name"): entry.get("extension") for entry in cluster.items("extensions") if isinstance(entry, dict)
    }
    return ExecPlugin(
        command=command,
        api_version=api_version,
        args=plugin.texts("args"),
        env=_exec_environment(plugin),
        install_hint=plugin.text("installHint"),
        provide_cluster_info=plugin.flag("provideClusterInfo"),
        cluster_config=extensions.get(EXEC_CLUSTER_EXTENSION),
    )


def _exec_environment(plugin: _Fields) -> tuple[tuple[str, str], ...]:
    variables = []
    for index, item in enumerate(plugin.items("env")):
        variable = plugin.at(f"env[{index}]", item)
        name = variable.text("name")
        if not name:
            raise variable.error("name", "expected the name of a variable")
        variables.append((name, variable.text("value")))
    return tuple(variables)


def _impersonation(user: _Fields) -> Impersonation | None:
    name, uid, groups = user.text("as"), user.text("as-uid"), user.texts("as-groups")
    extra: dict[str, tuple[str, ...]] = {}
    if user.has("as-user-extra"):
        values = user.child("as-user-extra")
        extra = {str(key): values.texts(key) for key in user.raw("as-user-extra")}
    if name:
        impersonation = Impersonation(user=name, uid=uid, groups=groups, extra=extra)
        if any(not value.isprintable() for _, value in impersonation.headers()):
            # They become headers, one line each.
            raise user.error(
                "as", "expected text without control characters in it, as-uid, as-groups and as-user-extra"
            )
        return impersonation
    if uid or groups or extra:
        raise user.error("as", "expected a user to impersonate, since as-uid, as-groups or as-user-extra is given")
    return None


# --- files ---


def _check_readable(fields: _Fields, field: str, path: Path | None) -> None:
    if path is None:
        return
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise fields.error(field, f"cannot read {path}: {error.strerror}") from error


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise KubeconfigError(f"{what} {path}: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise KubeconfigError(f"{what} {path}: more than {_FILE_BYTES_MAX >> 20} MiB")
    return data


def _told(value: Any) -> str:
    """A wrong value in a message: its type only, since it may be a secret."""
    if value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a mapping"}
    return names.get(type(value), f"a {type(value).__name__}")
