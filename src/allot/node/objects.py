"""Fetches objects that pods refer to on demand: ConfigMaps, Secrets, volumes, tokens of service accounts.

A node may read only what its pods refer to, object by object (the node authorizer), so nothing is listed or watched.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.core.lifecycle.times import seconds_of
from allot.core.model.pods_v1 import RunnablePod
from allot.core.model.volumes_v1 import ClusterTrustBundleProjection
from allot.core.selectors import SelectorError, label_requirements

Data = Mapping[str, bytes]


class Missing(Exception):
    """An object that a pod refers to does not exist, in the kubelet's words."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a service account."""

    text: str
    expires_at: float


class Objects:
    """Fetches what pods refer to."""

    def __init__(self, client: Client) -> None:
        self._config_maps = client.resource("", "v1", "configmaps", namespaced=True)
        self._secrets = client.resource("", "v1", "secrets", namespaced=True)
        self._accounts = client.resource("", "v1", "serviceaccounts", namespaced=True)
        self._volume_claims = client.resource("", "v1", "persistentvolumeclaims", namespaced=True)
        self._volumes = client.resource("", "v1", "persistentvolumes", namespaced=False)
        self._trust_bundles = client.resource("certificates.k8s.io", "v1", "clustertrustbundles", namespaced=False)
        self._runtime_classes = client.resource("node.k8s.io", "v1", "runtimeclasses", namespaced=False)

    async def config_map(self, namespace: str, name: str) -> Data | None:
        """The data of a ConfigMap; None if it does not exist. Missing if it cannot be read."""
        try:
            found = await self._config_maps.get(name, namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise Missing(f"failed to fetch configmap {namespace}/{name}: {error.message}") from error
        data = {key: value.encode() for key, value in (found.get("data") or {}).items()}
        return {**data, **_decoded(found.get("binaryData"))}

    async def secret(self, namespace: str, name: str) -> Data | None:
        """The data of a Secret; None if it does not exist."""
        try:
            found = await self._secrets.get(name, namespace)
        except NotFound:
            return None
        except ApiError as error:
            raise Missing(f"failed to fetch secret {namespace}/{name}: {error.message}") from error
        return _decoded(found.get("data"))

    async def volume(self, pod: RunnablePod, claim_name: str, *, is_ephemeral: bool) -> dict[str, Any]:
        """The volume bound to a pod's claim; Missing if there is none, or the claim is not for this pod."""
        namespace = pod.metadata.namespace
        about = f"error processing PVC {namespace}/{claim_name}"
        try:
            claim = await self._volume_claims.get(claim_name, namespace)
            if claim["metadata"].get("deletionTimestamp"):
                raise Missing(f"{about}: can't start pod because PVC is being deleted")
            owners = claim["metadata"].get("ownerReferences") or ()
            if is_ephemeral and not any(each.get("uid") == pod.metadata.uid for each in owners):
                text = f"PVC {namespace}/{claim_name} was not created for pod {pod.key} (pod is not owner)"
                raise Missing(f"{about}: {text}")
            name = claim["spec"].get("volumeName")
            if (claim.get("status") or {}).get("phase") != "Bound" or not name:
                raise Missing(f"{about}: PVC is not bound")
            volume = await self._volumes.get(name)
        except ApiError as error:
            raise Missing(f"{about}: {error.message}") from error
        holder = volume["spec"].get("claimRef") or {}
        if holder.get("uid") != claim["metadata"]["uid"]:
            raise Missing(f"{about}: PV {name} is not bound to it")
        return volume

    async def trust_bundles(self, source: ClusterTrustBundleProjection) -> tuple[str, ...]:
        """The trust bundles that a projection selects, unchanged; empty if there are none. A signer without a selector selects nothing."""
        try:
            if source.name is not None:
                found = [await self._trust_bundles.get(source.name)]
            elif source.signer_name is not None and source.label_selector is not None:
                wanted = label_requirements(source.label_selector)
                assert wanted is not None, "there is a selector"
                found = [
                    each
                    for each in (await self._trust_bundles.list()).items
                    if (each.get("spec") or {}).get("signerName") == source.signer_name
                    and wanted.matches(each["metadata"].get("labels") or {})
                ]
            else:
                return ()
        except NotFound:
            return ()
        except SelectorError as error:
            raise Missing(f"while parsing label selector: {error}") from error
        except ApiError as error:
            raise Missing(f"while getting ClusterTrustBundle: {error.message}") from error
        return tuple(str((each.get("spec") or {}).get("trustBundle", "")) for each in found)

    async def runtime_handler(self, name: str) -> str:
        """The runtime's handler for a RuntimeClass; Missing if the class does not exist."""
        try:
            found = await self._runtime_classes.get(name)
        except ApiError as error:
            raise Missing(f'failed to get RuntimeClass "{name}": {error.message}') from error
        return str(found.get("handler", ""))

    async def token(self, pod: RunnablePod, audience: str, seconds: int) -> Token:
        """A token for a pod's service account, bound to the pod."""
        metadata = pod.metadata
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}
        spec: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": bound}
        if audience:
            spec["audiences"] = [audience]
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod.spec.service_account_name or "default"
        try:
            made = await self._accounts.create(request, metadata.namespace, name=account, subresource="token")
        except ApiError as error:
            raise Missing(f"failed to fetch token: {error.message}") from error
        status = made.get("status") or {}
        return Token(text=str(status.get("token", "")), expires_at=seconds_of(status["expirationTimestamp"]))


def _decoded(data: Mapping[str, str] | None) -> Data:
    found = {}
    for key, value in (data or {}).items():
        try:
            found[key] = b64decode(value)
        except (NotBase64, ValueError):
            continue  # the API server validates this; skip what it let through
    return found
