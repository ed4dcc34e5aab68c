"""Volumes that a node's agent can create by itself, beyond what `core_v1.Volume` names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.containers_v1 import ObjectFieldSelector, ResourceFieldSelector
from allot.core.model.core_v1 import ImageVolumeSource, NodeLocalSource, Volume
from allot.core.model.meta import EMPTY, Int32, Int64, LabelSelector, PartialStruct
from allot.core.quantity import Quantity


class KeyToPath(PartialStruct, frozen=True, kw_only=True):
    """A key and the file that it becomes."""

    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class EmptyDirVolumeSource(NodeLocalSource, frozen=True, kw_only=True):
    """A directory that lives as long as the pod."""

    size_limit: Quantity | None = None


class PulledImageVolumeSource(ImageVolumeSource, frozen=True, kw_only=True):
    """The content of an image, and when it is pulled."""

    pull_policy: str = ""


class HostPathVolumeSource(NodeLocalSource, frozen=True, kw_only=True):
    """A file or directory of the node."""

    path: str = ""
    type: str = ""


class ConfigMapVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """Files from a config map."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool = False


class SecretVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """Files from a secret; in a projected volume it is called `name`."""

    secret_name: str = ""
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool = False


class DownwardAPIVolumeFile(PartialStruct, frozen=True, kw_only=True):
    """A file with a field of the pod."""

    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: Int32 | None = None


class DownwardAPIVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """Files with fields of the pod."""

    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: Int32 | None = None


class ServiceAccountTokenProjection(PartialStruct, frozen=True, kw_only=True):
    """A file with a token of the pod's service account."""

    audience: str = ""
    expiration_seconds: Int64 = 3600
    path: str = ""


class ClusterTrustBundleProjection(PartialStruct, frozen=True, kw_only=True):
    """A file with certificates that are trusted: those of one bundle, or of a signer's bundles that match a selector."""

    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool = False
    path: str = ""


class PodCertificateProjection(PartialStruct, frozen=True, kw_only=True):
    """Files with a key that the agent generates, and a certificate that a signer issues for it."""

    signer_name: str = ""
    key_type: str = ""
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: Mapping[str, str] = EMPTY


class VolumeProjection(PartialStruct, frozen=True, kw_only=True):
    """One source of a projected volume."""

    secret: SecretVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(PartialStruct, frozen=True, kw_only=True):
    """Files from several sources in one directory."""

    sources: tuple[VolumeProjection, ...] = ()
    default_mode: Int32 | None = None


class RunnableVolume(Volume, frozen=True, kw_only=True):
    """A volume with everything that its node needs to create it, if an agent can create that kind by itself."""

    empty_dir: EmptyDirVolumeSource | None = None
    image: PulledImageVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolumeSource | None = None
