"""Jobs and cron jobs: JSON with rules, and gang scheduling of their pods."""

from __future__ import annotations

from allot.apiserver.kinds.generic import GenericStrategy, errors_of
from allot.apiserver.resources import Object, Resource
from allot.core.features import FeatureGates
from allot.core.validation.builtin.job_scheduling import check_scheduling
from allot.core.validation.builtin.values import given, members
from allot.core.validation.fields import FieldError

_SPECS = {"Job": ("spec",), "CronJob": ("spec", "jobTemplate", "spec")}


class JobStrategy(GenericStrategy):
    """Checks spec.scheduling of jobs."""

    def __init__(self, resource: Resource, gates: FeatureGates) -> None:
        super().__init__(resource, gates=gates)
        self._path = _SPECS[resource.kind]

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new job."""
        return (*super().validate_create(object_), *self._scheduling_errors(object_, None))

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed job."""
        found = super().validate_update(object_, old, subresource)
        return found if subresource else (*found, *self._scheduling_errors(object_, old))

    def _scheduling_errors(self, object_: Object, old: Object | None) -> tuple[FieldError, ...]:
        spec, before = members(object_, *self._path), None if old is None else members(old, *self._path)
        if not given(spec, "scheduling") and not given(before, "scheduling"):
            return ()
        # A cron job's template may change freely.
        previous = before if len(self._path) == 1 else None
        return errors_of(check_scheduling(spec, previous, ".".join(self._path), self._gates))
