"""Where the vectors are: inputs with the answers that Kubernetes gave, kept outside the repository."""

from __future__ import annotations

import os
from pathlib import Path


def vectors_dir() -> Path | None:
    """The folder named by ALLOT_VECTORS, else the one beside the repository; None when there is none."""
    named = os.environ.get("ALLOT_VECTORS")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "vectors"
    return folder if folder.is_dir() else None
