"""Files with device metadata for containers (KEP-5304): one per request of a claim, mounted by its own CDI spec.

A file holds the same value in each version of the format, the newest first; a reader takes the first that it understands.
A failure to write a file does not prevent the pod from running: it is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from allot.core.cdi import Mount
from allot.core.model.resource_v1 import (
    POD_CLAIM_NAME_ANNOTATION,
    DeviceAttribute,
    NetworkDeviceData,
    ResourceClaim,
)
from allot.driver.cdi import CdiError, Edits, build_spec, qualified
from allot.driver.claims import AllocatedDevice, HeldDevice, Prepared
from allot.driver.configuration import base_request
from allot.driver.files import remove_file, remove_folder, replace_file
from allot.process.beneath import BadName, checked_name

_log = logging.getLogger("allot.driver")

VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
CONTAINER_DIRECTORY = "/var/run/kubernetes.io/dra-device-attributes"
_DIRECTORY = "dra-device-metadata"


class MetadataFiles:
    """Metadata files of one driver below its data directory."""

    def __init__(self, driver: str, data_directory: Path, cdi_directory: Path) -> None:
        self._driver = driver
        self._directory = data_directory / _DIRECTORY
        self._cdi_directory = cdi_directory
        self._kind = f"{driver}/metadata"

    def write(
        self,
        claim: ResourceClaim,
        devices: Iterable[AllocatedDevice],
        prepared: Mapping[tuple[str, str, str, str], Prepared],
    ) -> dict[str, str]:
        """Write the files of a claim; returns the CDI name that mounts each, by base request."""
        by_request: dict[str, list[AllocatedDevice]] = {}
        for device in devices:
            by_request.setdefault(device.base_request, []).append(device)
        ids = {}
        for request, members in by_request.items():
            try:
                ids[request] = self._write_request(claim, request, members, prepared)
            except (OSError, CdiError, BadName) as error:
                _log.warning(
                    "claim %s/%s: metadata of request %s: %s",
                    claim.metadata.namespace,
                    claim.metadata.name,
                    request,
                    error,
                )
        return ids

    def update(
        self,
        namespace: str,
        name: str,
        device: HeldDevice | AllocatedDevice,
        attributes: Mapping[str, DeviceAttribute] | None,
        network: NetworkDeviceData | None,
    ) -> None:
        """Change the metadata of a device; new containers see it. OSError if there is no file."""
        path = self._claim_directory(namespace, name) / base_request(device.request) / "metadata.json"
        value: dict[str, Any] = msgspec.json.decode(path.read_bytes().partition(b"\n")[0])
        for request in value["requests"]:
            for each in request["devices"]:
                if request["name"] == device.request and (each["pool"], each["name"]) == (device.pool, device.name):
                    if attributes is not None:
                        each["attributes"] = {key: msgspec.to_builtins(item) for key, item in attributes.items()}
                    if network is not None:
                        each["networkData"] = msgspec.to_builtins(network)
        value["metadata"]["generation"] += 1
        replace_file(path, _in_versions(value), 0o644)

    def remove(self, uid: str, namespace: str, name: str, requests: Iterable[str]) -> None:
        """Remove the files of a claim."""
        for request in requests:
            remove_file(self._spec_path(uid, request))
        if requests:
            remove_folder(self._claim_directory(namespace, name))

    def sweep(self, claims: Iterable[tuple[str, str, str]]) -> None:
        """Remove the files of all claims except these (uid, namespace, name)."""
        kept = tuple(claims)
        folders = {self._claim_directory(namespace, name) for _, namespace, name in kept}
        if self._directory.is_dir():
            for folder in self._directory.iterdir():
                if folder not in folders:
                    remove_folder(folder)
        uids = tuple(uid for uid, _, _ in kept)
        prefix = f"{self._driver}_metadata_"
        for path in self._cdi_directory.glob(f"{prefix}*.json"):
            if not path.name.removeprefix(prefix).startswith(uids) or not uids:
                remove_file(path)

    def _write_request(
        self,
        claim: ResourceClaim,
        request: str,
        devices: list[AllocatedDevice],
        prepared: Mapping[tuple[str, str, str, str], Prepared],
    ) -> str:
        metadata = claim.metadata
        pod_claim_name = metadata.annotations.get(POD_CLAIM_NAME_ANNOTATION, "")
        folder = self._claim_directory(metadata.namespace, metadata.name) / checked_name(request, "request")
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = folder / "metadata.json"
        value = {
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "generation": _generation(path) + 1,
            },
            **({"podClaimName": pod_claim_name} if pod_claim_name else {}),
            "requests": [
                {"name": name, "devices": [self._described(each, prepared) for each in devices if each.request == name]}
                for name in dict.fromkeys(device.request for device in devices)
            ],
        }
        replace_file(path, _in_versions(value), 0o644)
        device = f"{metadata.uid}_{request}"
        place = f"resourceclaimtemplates/{pod_claim_name}" if pod_claim_name else f"resourceclaims/{metadata.name}"
        mount = Mount(
            host_path=str(path),
            container_path=f"{CONTAINER_DIRECTORY}/{place}/{request}/{self._driver}-metadata.json",
            options=("ro", "bind"),
        )
        spec = build_spec(self._kind, {device: Edits(mounts=(mount,))})
        replace_file(self._spec_path(metadata.uid, request), msgspec.json.encode(spec), 0o644)
        return qualified(self._kind, device)

    def _described(
        self, device: AllocatedDevice, prepared: Mapping[tuple[str, str, str, str], Prepared]
    ) -> dict[str, Any]:
        given = prepared.get((device.request, device.pool, device.name, device.share_id or ""))
        attributes: Any = given.metadata if given is not None and given.metadata is not None else None
        if attributes is None:
            attributes = device.declared.attributes if device.declared is not None else {}
        described: dict[str, Any] = {
            "driver": self._driver,
            "pool": device.pool,
            "name": device.name,
            "attributes": {name: msgspec.to_builtins(value) for name, value in attributes.items()},
        }
        network: NetworkDeviceData | None = given.network if given is not None else None
        if network is not None:
            described["networkData"] = msgspec.to_builtins(network)
        return described

    def _claim_directory(self, namespace: str, name: str) -> Path:
        return self._directory / checked_name(f"{namespace}_{name}", "folder of a claim:")

    def _spec_path(self, uid: str, request: str) -> Path:
        name = f"{self._driver}_metadata_{uid}_{request}.json"
        return self._cdi_directory / checked_name(name, "CDI file of a claim:")


def _in_versions(value: Mapping[str, Any]) -> bytes:
    """A value in every version, the newest first."""
    texts = [msgspec.json.encode({**value, "kind": "DeviceMetadata", "apiVersion": version}) for version in VERSIONS]
    return b"\n".join(texts) + b"\n"


def _generation(path: Path) -> int:
    """The generation of the existing file; 0 if it is missing or unreadable."""
    try:
        first = path.read_bytes().partition(b"\n")[0]
        return int(msgspec.json.decode(first)["metadata"]["generation"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0
