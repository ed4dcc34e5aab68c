"""Writes kubeconfig files for the server's users: self-contained, readable by their owner only.

An existing file keeps its other clusters, users and contexts.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from allot.apiserver.access.secret_files import SecretFileError, make_private_directory, write_secret
from allot.yaml_values.reader import NotYAML, read_yaml
from allot.yaml_values.writer import yaml_text


def write_kubeconfig(
    path: Path, server_url: str, ca: bytes, certificate: bytes, key: bytes, name: str, namespace: str = ""
) -> None:
    """Write cluster, user and context under a name and make them the current ones."""
    config = _read(path)
    context = {"cluster": name, "user": name} | ({"namespace": namespace} if namespace else {})
    cluster = {"server": server_url, "certificate-authority-data": _base64(ca)}
    user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    for section, field, entry in (
        ("clusters", "cluster", cluster),
        ("users", "user", user),
        ("contexts", "context", context),
    ):
        others = [other for other in config.get(section) or [] if other.get("name") != name]
        config[section] = [*others, {"name": name, field: entry}]
    config["current-context"] = name
    if not path.parent.exists():
        make_private_directory(path.parent)
    write_secret(path, yaml_text(config).encode())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise SecretFileError(f"kubeconfig {path}: cannot be read: {error.strerror or error}") from error
    if not content.strip():
        return {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    try:
        config = read_yaml(content)
    except NotYAML as error:
        raise SecretFileError(f"kubeconfig {path}: is not YAML, and left unchanged") from error
    sections = ("clusters", "users", "contexts")
    if not isinstance(config, dict) or not all(_is_section(config.get(section)) for section in sections):
        raise SecretFileError(f"kubeconfig {path}: is not a kubeconfig, and left unchanged")
    return config


def _is_section(entries: object) -> bool:
    return entries is None or (isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries))
