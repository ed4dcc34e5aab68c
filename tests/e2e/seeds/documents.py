"""The documents that allot began with: manifests and kubectl commands that people published. They are read where they are and not copied.

Two are Markdown, in which manifests and commands stand between fences; the others are the plain text of web pages, in which a
manifest begins with its apiVersion and ends with an empty line.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

MISSING = "the documents are not there: they are read from ../shared/seeds or the folder that ALLOT_SEEDS names"
_FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PLAIN_MANIFEST = re.compile(r"^apiVersion:.*\n(?:.+\n)*", re.MULTILINE)
_COMMAND = re.compile(r"^kubectl .+$", re.MULTILINE)

# How each begins, or what else only it says.
RISEUNION = "Kubernetes DRA: Revolutionary GPU Resource Management"
GKE = "Learn how to use Dynamic Resource Allocation (DRA) in Kubernetes to optimize"
AKS = "Delve into Dynamic Resource Allocation, devices, and drivers on Kubernetes"
GA = "Dynamic Resource Allocation Goes GA"


class Document(msgspec.Struct, frozen=True):
    """What one document has for a cluster."""

    manifests: tuple[str, ...]
    commands: tuple[str, ...]


def seeds_dir() -> Path | None:
    """The folder named by ALLOT_SEEDS, else the one beside the repository; None when there is none."""
    named = os.environ.get("ALLOT_SEEDS")
    folder = Path(named) if named else Path(__file__).resolve().parents[4] / "shared" / "seeds"
    return folder if folder.is_dir() else None


def document(title: str) -> Document:
    """The one document that says this."""
    folder = seeds_dir()
    assert folder is not None, MISSING
    (text,) = [text for file in sorted(folder.glob("*.txt")) if title in (text := file.read_text())]
    fenced = _FENCED.findall(text)
    manifests = [block for block in fenced if "apiVersion:" in block] if fenced else _PLAIN_MANIFEST.findall(text)
    return Document(tuple(manifests), tuple(_COMMAND.findall(text)))
