"""Reads what a kube-apiserver may have stored in the same etcd: protobuf or JSON, possibly in versions other than ours.

With its default flags kube-apiserver stores built-in kinds as protobuf, and every definition of custom resources as v1beta1. Objects
are read into the version in which they are stored here; they stay in etcd as they are until someone writes them. Custom
resources are JSON in any version of theirs: their rows convert them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.kinds.versions import convert_to
from allot.apiserver.resources import Object, Refused
from allot.core.customresources.older_definitions import V1BETA1
from allot.core.validation.builtin.batch import label_job
from allot.wire import kubernetes as protobuf
from allot.wire.kubernetes import MAGIC, Malformed, NotReadable


def _phase(name: str) -> Callable[[Object], None]:
    def fill(object_: Object) -> None:
        if not (object_.get("status") or {}).get("phase"):
            object_["status"] = {"phase": name, **(object_.get("status") or {})}

    return fill


# Defaults that kube-apiserver stores objects without, and shows nevertheless, because it applies defaults on reading (v1.37.0-rc.1: core/v1
# and batch/v1 defaults.go). All others were applied before it stored the object.
_LATE_DEFAULTS: dict[tuple[str, str], Callable[[Object], None]] = {
    ("v1", "Namespace"): _phase("Active"),
    ("v1", "PersistentVolume"): _phase("Pending"),
    ("v1", "PersistentVolumeClaim"): _phase("Pending"),
    ("batch/v1", "Job"): label_job,
}


class NotUnderstood(ValueError):
    """A value that is not an object, or an object in a form that would lose something."""


def read_stored(raw: bytes) -> Object:
    """The object in its storage version; NotUnderstood."""
    try:
        object_: Object = protobuf.read(raw) if raw.startswith(MAGIC) else msgspec.json.decode(raw, type=dict)
        api_version, kind = str(object_["apiVersion"]), str(object_["kind"])
        stored = _storage_versions().get((api_version.rpartition("/")[0], kind), api_version)
        if stored == api_version:
            fill = _LATE_DEFAULTS.get((api_version, kind))
            if fill is not None:
                fill(object_)
            return object_
        if (api_version, kind) not in _readable():
            raise NotUnderstood(f"{kind} is stored as {api_version!r}, which is unknown; expected {stored!r}")
        return convert_to(object_, kind, api_version, stored)
    except KeyError as error:
        raise NotUnderstood(f"it has no {error.args[0]}") from error
    except (msgspec.DecodeError, Malformed, NotReadable, Refused) as error:
        raise NotUnderstood(str(error)) from error


@cache
def _readable() -> frozenset[tuple[str, str]]:
    """Versions and kinds that can be converted to the storage version."""
    served = {(row.api_version, row.kind) for row in builtin_resources()}
    return frozenset({*served, (V1BETA1, "CustomResourceDefinition")})


@cache
def _storage_versions() -> dict[tuple[str, str], str]:
    """Group and kind of what is stored -> the apiVersion in which it is stored."""
    return {(row.group, row.kind): row.storage_api_version for row in builtin_resources() if row.stored}
