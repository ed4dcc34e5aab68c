"""Pods: JSON with special rules and typed checks; they terminate gracefully if they may be running."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from allot.apiserver.kinds.fast_path import PodFastPath
from allot.apiserver.kinds.generic import GenericStrategy, read_meta
from allot.apiserver.kinds.known_specs import KnownSpecs, PodSpecKeys, exact_key
from allot.apiserver.kinds.typed import decode_typed, new_metadata_errors
from allot.apiserver.resources import Object, Resource
from allot.core.features import FeatureGates
from allot.core.model.codec import Envelope
from allot.core.model.kinds import kind_of
from allot.core.validation import validate
from allot.core.validation.builtin.values import given, items, members
from allot.core.validation.fields import FieldError, Findings
from allot.core.validation.gated_paths import without_gated
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update
from allot.core.validation.pod import MIRROR_POD_ANNOTATION
from allot.process.clock import rfc3339

_DEFAULT_GRACE_S = 30


class PodStrategy(GenericStrategy):
    """Pods: JSON with the rules of `core.validation.builtin`, and typed checks of what device allocation needs."""

    fast_path = PodFastPath()

    def __init__(self, resource: Resource, gates: FeatureGates) -> None:
        super().__init__(resource, gates=gates)
        self._kind = kind_of(resource.api_version, resource.kind)
        # Specs as written and with defaults; the status that a spec starts with; valid ones.
        self._read: KnownSpecs[Any] = KnownSpecs()
        self._statuses: KnownSpecs[Any] = KnownSpecs()
        self._valid: KnownSpecs[bool] = KnownSpecs()
        self._keys = PodSpecKeys()

    def read(self, object_: Object) -> Object:
        """The pod with defaults."""
        if "spec" not in object_ or "status" in object_:
            return super().read(object_)
        key = exact_key(object_["spec"])
        spec = self._read.get(key)
        if spec is None:
            spec = self._read.put(key, super().read(object_)["spec"])
        return {**object_, "spec": spec}

    def prepare_create(self, object_: Object) -> Object:
        """A new pod."""
        spec, metadata = members(object_, "spec"), members(object_, "metadata")
        key = self._keys.key(spec)
        status = self._statuses.get(key)
        if status is None:
            # A known spec has nothing to drop.
            object_ = without_gated(object_, None, self._off)
            key = self._keys.key(members(object_, "spec"))
            assert self._rules.initial_status is not None, "pods start with a status"
            status = self._statuses.put(key, self._rules.initial_status(object_))
        return {**object_, "metadata": {**metadata, "generation": 1}, "status": status}

    def dropped(self, given: Object, kept: Object, old: Object | None, subresource: str) -> tuple[str, ...]:
        """What the writer should know about fields whose feature gate is off."""
        # Most pods are new and keep the spec they were given.
        if old is None and given.get("spec") is kept.get("spec"):
            return ()
        return super().dropped(given, kept, old, subresource)

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new pod."""
        key = None if _depends_on_metadata(object_) else self._keys.key(object_.get("spec"))
        if key in self._valid:
            return new_metadata_errors(object_)
        typed = validate.validate_create(self._prepared(object_), gates=self._gates)
        errors = _merged(typed, self._rules.check(object_))
        if not errors:
            self._valid.put(key, True)
        return errors

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed pod."""
        typed: tuple[FieldError, ...] = ()
        if subresource == "":
            if not _depends_on_metadata(object_) and self._only_metadata_changed(object_, old):
                return ()
            typed = validate.validate_update(self._prepared(object_), self._prepared(old).envelope, gates=self._gates)
        elif subresource == "status":
            typed = validate.validate_status_update(
                self._prepared(object_), self._prepared(old).envelope, gates=self._gates
            )
        return _merged(typed, self._rules.check_update(object_, old, subresource))

    def _only_metadata_changed(self, object_: Object, old: Object) -> bool:
        """Whether an update changes only metadata, all of it valid, of a pod with a spec known to be
        valid. False only means that everything must be checked."""
        if object_.get("spec") != old.get("spec") or object_.get("status") != old.get("status"):
            return False
        if self._keys.key(object_.get("spec")) not in self._valid or not object_["metadata"].get("resourceVersion"):
            return False
        meta = read_meta(object_)
        return not check_object_meta(meta, namespaced=True) and not check_object_meta_update(meta, read_meta(old))

    def grace_s(self, object_: Object, asked: int | None) -> int:
        """Pods that may be running get the grace period of the client or their spec."""
        spec, status = object_.get("spec") or {}, object_.get("status") or {}
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        if asked is not None:
            return asked
        period = spec.get("terminationGracePeriodSeconds")
        if period is None:
            return _DEFAULT_GRACE_S
        return period if period >= 0 else 1

    def prepare_delete(self, marked: Object, old: Object, asked: int | None, now: int) -> Object:
        """A later deletion may only shorten the grace period."""
        metadata = marked["metadata"]
        present = metadata.get("deletionGracePeriodSeconds") or 0
        if "deletionTimestamp" not in old["metadata"] or asked is None or asked >= present:
            return marked
        at = int(datetime.fromisoformat(metadata["deletionTimestamp"]).astimezone(UTC).timestamp()) - present + asked
        if at < now:
            at, asked = now, min(asked, 1)
        shortened = {"deletionTimestamp": rfc3339(at), "deletionGracePeriodSeconds": asked}
        return {**marked, "metadata": metadata | shortened}

    def _prepared(self, object_: Object) -> validate.Prepared:
        decoded = decode_typed(object_, self._kind)
        envelope = Envelope(kind=self._kind, api_version="v1", object=decoded, source=object_)
        return validate.Prepared(envelope=envelope)


def _depends_on_metadata(pod: Object) -> bool:
    """Whether the rules for a pod's spec look at its name or annotations."""
    mirrored = MIRROR_POD_ANNOTATION in members(pod, "metadata", "annotations")
    return mirrored or any(given(volume, "ephemeral") for volume in items(pod, "spec", "volumes"))


def _merged(typed: tuple[FieldError, ...], untyped: Findings) -> tuple[FieldError, ...]:
    return tuple(dict.fromkeys((*typed, *(finding.error for finding in untyped))))
