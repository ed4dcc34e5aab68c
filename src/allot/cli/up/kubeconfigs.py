"""Adds the context `allot` to an existing kubeconfig, and removes it again.

A context of that name is ours if it has our certificate authority. The data directory records where it was added and the previous current
context.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import msgspec

from allot.apiserver.access.secret_files import write_secret
from allot.apiserver.access.setup import Access
from allot.cli.errors import Unreadable
from allot.yaml_values.reader import NotYAML, read_yaml
from allot.yaml_values.writer import yaml_text

CONTEXT = "allot"
_NOTE = "merged-kubeconfig.json"
_SECTIONS = ("clusters", "users", "contexts")


class _Merged(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    context_before: str = ""


def kubeconfig_to_merge_into() -> Path:
    """The file that kubectl would write to: the first of $KUBECONFIG, or ~/.kube/config."""
    for path in filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep)):
        return Path(path).absolute()
    return Path.home() / ".kube" / "config"


def merge_context(data: Path, path: Path, access: Access, url: str) -> None:
    """Add the context, and make it the current one. data: the data directory. Unreadable."""
    before = _read(path).get("current-context") or ""
    if before != CONTEXT:
        note = _Merged(path=str(path), context_before=before)
        (data / _NOTE).write_bytes(msgspec.json.encode(note))
    access.write_admin_kubeconfig(path, url, CONTEXT)


def remove_context(data: Path) -> Path | None:
    """Take it out of where it was added to; the file, or None if it is not in there any more. Unreadable."""
    try:
        note = msgspec.json.decode((data / _NOTE).read_bytes(), type=_Merged)
        authority = (data / "pki" / "ca.crt").read_bytes()
    except (OSError, msgspec.DecodeError):
        return None
    path = Path(note.path)
    config = _read(path)
    if not _has_cluster(config, base64.b64encode(authority).decode()):
        return None
    for section in _SECTIONS:
        config[section] = [entry for entry in config.get(section) or () if entry.get("name") != CONTEXT]
    if config.get("current-context") == CONTEXT:
        config["current-context"] = note.context_before
    write_secret(path, yaml_text(config).encode())
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        config = read_yaml(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, NotYAML) as error:
        raise Unreadable(f"kubeconfig {path}: unreadable, and left unchanged: {error}") from None
    return config if isinstance(config, dict) else {}


def _has_cluster(config: dict[str, Any], authority: str) -> bool:
    entries = (entry for entry in config.get("clusters") or () if entry.get("name") == CONTEXT)
    return any((entry.get("cluster") or {}).get("certificate-authority-data") == authority for entry in entries)
