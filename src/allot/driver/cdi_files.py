"""The CDI spec files of a driver: one per prepared claim, and one for all its containers.

Recognizes its own files in the directory by name. Does not touch other files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from allot.driver.cdi import Edits, build_spec, check_kind, qualified
from allot.driver.files import remove_file, replace_file
from allot.process.beneath import checked_name

COMMON = "common"
_MODE = 0o644


class CdiFiles:
    """Spec files of one driver. kind: `vendor/class` of its devices."""

    def __init__(self, directory: Path, kind: str) -> None:
        check_kind(kind)
        self.kind = kind
        self._directory = directory
        self._prefix = kind.replace("/", "-") + "_"

    def claim_path(self, claim_uid: str) -> Path:
        """The file of a claim. BadName if the UID is invalid."""
        return self._directory / checked_name(f"{self._prefix}{claim_uid}.json", "CDI file of a claim:")

    def device_name(self, claim_uid: str, device: str, share_id: str | None = None) -> str:
        """The CDI name of a claim's device, unique across claims."""
        return f"{claim_uid}-{device}-{share_id}" if share_id else f"{claim_uid}-{device}"

    def spec_of(self, edits: Mapping[str, Edits]) -> dict[str, Any]:
        """The spec of a claim; CdiError if it is invalid."""
        return build_spec(self.kind, edits)

    def write_claim(self, claim_uid: str, spec: Mapping[str, Any]) -> None:
        """Write the spec of a claim."""
        replace_file(self.claim_path(claim_uid), msgspec.json.encode(spec), _MODE)

    def has_claim(self, claim_uid: str) -> bool:
        """Whether a claim's file exists."""
        return self.claim_path(claim_uid).exists()

    def remove_claim(self, claim_uid: str) -> None:
        """Remove the spec of a claim."""
        remove_file(self.claim_path(claim_uid))

    def write_common(self, edits: Edits) -> str:
        """Write the edits for every container; returns their CDI name."""
        spec = build_spec(self.kind, {COMMON: edits})
        replace_file(self.claim_path(COMMON), msgspec.json.encode(spec), _MODE)
        return qualified(self.kind, COMMON)

    def open(self) -> None:
        """Create the directory, and remove leftovers of crashed writers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.glob(f".{self._prefix}*.new"):
            remove_file(path)

    def sweep(self, claim_uids: Collection[str]) -> tuple[str, ...]:
        """Remove the files of all other claims; returns their UIDs."""
        removed = []
        for path in sorted(self._directory.glob(f"{self._prefix}*.json")):
            claim_uid = path.name.removeprefix(self._prefix).removesuffix(".json")
            if claim_uid != COMMON and claim_uid not in claim_uids:
                remove_file(path)
                removed.append(claim_uid)
        return tuple(removed)
