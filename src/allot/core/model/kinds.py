"""The kinds that core knows: their types, names, scopes and versions.

One table for decoding, conversion, validation, the API server's routes and the CLI. The hub version is the one that the
types in `model` describe; every other version is converted to and from it.
"""

from __future__ import annotations

import msgspec

from allot.core.model import core_v1, resource_v1, scheduling_v1
from allot.core.model.meta import APIStruct


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of the API."""

    name: str
    plural: str
    group: str
    # In the order in which the server offers them.
    versions: tuple[str, ...]
    hub_version: str
    stored_version: str
    namespaced: bool
    type: type[APIStruct]
    has_status: bool = False

    @property
    def singular(self) -> str:
        """The resource name for one object."""
        return self.name.lower()

    @property
    def hub_api_version(self) -> str:
        """The apiVersion that the type describes."""
        return self.api_version(self.hub_version)

    def api_version(self, version: str) -> str:
        """The apiVersion of one of the versions: `v1` in the core group, `group/version` elsewhere."""
        return f"{self.group}/{version}" if self.group else version

    @property
    def api_versions(self) -> tuple[str, ...]:
        """The apiVersion of every version."""
        return tuple(self.api_version(version) for version in self.versions)


class UnknownKind(ValueError):
    """An apiVersion and kind that core does not know."""


_RESOURCE_VERSIONS = ("v1", "v1beta2", "v1beta1")
_SCHEDULING_VERSIONS = ("v1beta1", "v1alpha3")


def _core(name: str, plural: str, type_: type[APIStruct], *, namespaced: bool) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        group="",
        versions=("v1",),
        hub_version="v1",
        stored_version="v1",
        namespaced=namespaced,
        type=type_,
        has_status=True,
    )


def _resource(
    name: str,
    plural: str,
    type_: type[APIStruct],
    *,
    namespaced: bool,
    versions: tuple[str, ...] = _RESOURCE_VERSIONS,
    stored_version: str = "v1",
    has_status: bool = False,
) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        group=resource_v1.GROUP,
        versions=versions,
        hub_version=versions[0],
        stored_version=stored_version,
        namespaced=namespaced,
        type=type_,
        has_status=has_status,
    )


def _scheduling(
    name: str, plural: str, type_: type[APIStruct], versions: tuple[str, ...], *, namespaced: bool, has_status: bool
) -> Kind:
    return Kind(
        name=name,
        plural=plural,
        group=scheduling_v1.GROUP,
        versions=versions,
        hub_version=versions[0],
        stored_version=versions[0],
        namespaced=namespaced,
        type=type_,
        has_status=has_status,
    )


KINDS: tuple[Kind, ...] = (
    _resource("DeviceClass", "deviceclasses", resource_v1.DeviceClass, namespaced=False),
    _resource("ResourceClaim", "resourceclaims", resource_v1.ResourceClaim, namespaced=True, has_status=True),
    _resource("ResourceClaimTemplate", "resourceclaimtemplates", resource_v1.ResourceClaimTemplate, namespaced=True),
    _resource("ResourceSlice", "resourceslices", resource_v1.ResourceSlice, namespaced=False),
    _resource(
        "DeviceTaintRule",
        "devicetaintrules",
        resource_v1.DeviceTaintRule,
        namespaced=False,
        versions=("v1", "v1beta2", "v1alpha3"),
        stored_version="v1beta2",
        has_status=True,
    ),
    _resource(
        "ResourcePoolStatusRequest",
        "resourcepoolstatusrequests",
        resource_v1.ResourcePoolStatusRequest,
        namespaced=False,
        versions=("v1alpha3",),
        stored_version="v1alpha3",
        has_status=True,
    ),
    _core("Pod", "pods", core_v1.Pod, namespaced=True),
    _core("Node", "nodes", core_v1.Node, namespaced=False),
    _core("Namespace", "namespaces", core_v1.Namespace, namespaced=False),
    _scheduling(
        "PriorityClass", "priorityclasses", scheduling_v1.PriorityClass, ("v1",), namespaced=False, has_status=False
    ),
    _scheduling(
        "Workload", "workloads", scheduling_v1.Workload, _SCHEDULING_VERSIONS, namespaced=True, has_status=False
    ),
    _scheduling(
        "PodGroup", "podgroups", scheduling_v1.PodGroup, _SCHEDULING_VERSIONS, namespaced=True, has_status=True
    ),
    _scheduling(
        "CompositePodGroup",
        "compositepodgroups",
        scheduling_v1.CompositePodGroup,
        ("v1alpha3",),
        namespaced=True,
        has_status=True,
    ),
)

_BY_API_VERSION_AND_NAME = {(api_version, kind.name): kind for kind in KINDS for api_version in kind.api_versions}
_BY_TYPE = {kind.type: kind for kind in KINDS}

# Old versions that are still read (the v1alpha3 of Kubernetes 1.31 to 1.33), never written.
_READ_ONLY_VERSIONS = {
    (f"{resource_v1.GROUP}/v1alpha3", kind.name): kind for kind in KINDS if kind.versions == _RESOURCE_VERSIONS
}

# For deprecated versions: the releases in which they were deprecated and will be removed.
_DEPRECATED_VERSIONS = {"v1beta1": ("1.35", "1.38"), "v1beta2": ("1.36", "1.39"), "v1alpha3": ("1.36", "1.39")}
_NOT_YET_DEPRECATED = {("v1beta2", "DeviceTaintRule"), ("v1alpha3", "ResourcePoolStatusRequest")}


def kind_of(api_version: str, name: str) -> Kind:
    """The kind with that apiVersion and name; UnknownKind, listing the known ones, if there is none."""
    key = (api_version, name)
    kind = _BY_API_VERSION_AND_NAME.get(key) or _READ_ONLY_VERSIONS.get(key)
    if kind is not None:
        return kind
    versions = sorted(api for api, other in _BY_API_VERSION_AND_NAME if other == name)
    if versions:
        raise UnknownKind(f"kind {name!r} has no version {_short(api_version)}: expected {' or '.join(versions)}")
    known = ", ".join(sorted(kind.name for kind in KINDS))
    raise UnknownKind(f"unknown kind {_short(name)} in apiVersion {_short(api_version)}: expected one of {known}")


def kind_of_type(type_: type[APIStruct]) -> Kind:
    """The kind that a type describes; KeyError for types that are not kinds."""
    return _BY_TYPE[type_]


def deprecation_of(api_version: str, name: str) -> str | None:
    """The warning that an API server gives for a deprecated version of a kind."""
    group, _, version = api_version.rpartition("/")
    if group != resource_v1.GROUP or (version, name) in _NOT_YET_DEPRECATED or version not in _DEPRECATED_VERSIONS:
        return None
    since, until = _DEPRECATED_VERSIONS[version]
    return f"{api_version} {name} is deprecated in v{since}+, unavailable in v{until}+"


def is_kind_type(type_: type) -> bool:
    """Whether the type describes a whole object rather than a part of one."""
    return type_ in _BY_TYPE


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
