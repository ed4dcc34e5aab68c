"""The status of a job as its controller writes it, possibly an external one (spec.managedBy).

Counters never decrease, a finished job stays finished, and a job finishes only once nothing of it remains. Values that a spec change
may have invalidated are checked only when written.
"""

from __future__ import annotations

from datetime import datetime

from allot.core.validation.builtin.checks import NEGATIVE_TEXT
from allot.core.validation.builtin.job_policies import indexes_problem, overlap
from allot.core.validation.builtin.values import Object, flag, given, items, members, number, same, text, texts
from allot.core.validation.fields import Findings, child, duplicate, index, invalid, invalid_whole, required

_COMPLETE, _FAILED, _TARGET, _MET = "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"
_COMPLETION_TIME = "status.completionTime"


def check_status_update(new: Object, old: Object) -> Findings:
    """A new status of a job, checked in upstream's order."""
    return _Change(members(new, "spec"), members(new, "status"), members(old, "status")).check()


def has(status: Object, type_: str, value: str = "True") -> bool:
    """Whether a condition holds."""
    return any(text(one, "type") == type_ and text(one, "status") == value for one in items(status, "conditions"))


class _Change:
    """A status, and the one before it."""

    def __init__(self, spec: Object, status: Object, before: Object) -> None:
        self._spec, self._status, self._before = spec, status, before
        self._is_complete, self._is_failed = has(status, _COMPLETE), has(status, _FAILED)
        self._is_met, self._is_target = has(status, _MET), has(status, _TARGET)
        self._is_finished = self._is_complete or self._is_failed
        self._is_indexed = text(spec, "completionMode") == "Indexed"

    def check(self) -> Findings:
        return (
            self._check_numbers()
            + self._check_ends()
            + self._check_completion_time()
            + self._check_announced()
            + self._check_nothing_left()
            + self._check_indexes()
            + self._check_pods()
            + self._check_success()
            + self._check_change()
        )

    def _count(self, name: str) -> int:
        return number(self._status, name) or 0

    def _fell(self, name: str) -> bool:
        return self._count(name) < (number(self._before, name) or 0)

    def _changed(self, *names: str) -> bool:
        return any(not same(self._status.get(name), self._before.get(name)) for name in names)

    def _turned(self, *types: str) -> bool:
        """Whether any of the conditions changed."""
        return any(has(self._status, type_) != has(self._before, type_) for type_ in types)

    def _ended(self) -> bool:
        """Whether this update finishes the job."""
        return self._is_finished and not (has(self._before, _COMPLETE) or has(self._before, _FAILED))

    def _check_numbers(self) -> Findings:
        found: Findings = []
        for name in ("active", "succeeded", "failed", "ready", "terminating"):
            if self._count(name) < 0:
                found.append(invalid(child("status", name), self._count(name), NEGATIVE_TEXT))
        seen: set[str] = set()
        for name in ("succeeded", "failed"):
            where = child("status.uncountedTerminatedPods", name)
            for place, uid in enumerate(texts(self._status, "uncountedTerminatedPods", name)):
                if not uid:
                    found.append(invalid(index(where, place), uid, "must not be empty"))
                elif uid in seen:
                    found.append(duplicate(index(where, place), uid))
                seen.add(uid)
        return found

    def _check_ends(self) -> Findings:
        wrong = {
            "cannot set Complete=True and Failed=true conditions": (
                self._turned(_COMPLETE, _FAILED) and self._is_complete and self._is_failed
            ),
            "cannot set Complete=True and FailureTarget=true conditions": (
                self._turned(_COMPLETE, _TARGET) and self._is_complete and self._is_target
            ),
        }
        return _told(wrong)

    def _check_completion_time(self) -> Findings:
        start, end = text(self._status, "startTime"), text(self._status, "completionTime")
        found: Findings = []
        if self._turned(_COMPLETE) or self._changed("completionTime"):
            if end and not self._is_complete:
                detail = "cannot set completionTime when there is no Complete=True condition"
                found.append(invalid(_COMPLETION_TIME, end, detail))
            if self._is_complete and not end:
                found.append(required(_COMPLETION_TIME, "completionTime is required for Complete jobs"))
        if self._changed("startTime", "completionTime") and start and end and _seconds(end) < _seconds(start):
            found.append(invalid(_COMPLETION_TIME, end, "must be equal to or after `startTime`"))
        return found

    def _check_announced(self) -> Findings:
        wrong = {
            "cannot set Failed=True condition without the FailureTarget=true condition": (
                (self._turned(_FAILED) or self._changed("failedIndexes")) and self._is_failed and not self._is_target
            ),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition": (
                self._turned(_COMPLETE, _MET) and self._is_complete and not self._is_met
            ),
        }
        return _told(wrong)

    def _check_nothing_left(self) -> Findings:
        if not self._is_finished:
            return []
        found: Findings = []
        if self._count("active") > 0 and (self._ended() or self._changed("active")):
            found.append(invalid("status.active", self._count("active"), "active>0 is invalid for finished job"))
        never_ran = flag(self._spec, "suspend") and number(self._spec, "completions") == 0
        has_begun = bool(text(self._status, "startTime")) or never_ran
        if not has_begun and (self._ended() or self._changed("startTime")):
            found.append(required("status.startTime", "startTime is required for finished job"))
        uncounted = members(self._status, "uncountedTerminatedPods")
        is_new = self._ended() or self._changed("uncountedTerminatedPods")
        if (uncounted.get("succeeded") or uncounted.get("failed")) and is_new:
            found.append(invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job"))
        return found

    def _check_indexes(self) -> Findings:
        completed, failed = text(self._status, "completedIndexes"), self._status.get("failedIndexes")
        is_completed_new, is_failed_new = self._changed("completedIndexes"), self._changed("failedIndexes")
        completions, is_per_index = number(self._spec, "completions"), given(self._spec, "backoffLimitPerIndex")
        found: Findings = []
        if is_completed_new and completions is not None:
            found += _check_index_list("completedIndexes", completed, completions)
        if is_failed_new and completions is not None and is_per_index and isinstance(failed, str):
            found += _check_index_list("failedIndexes", failed, completions)
        if is_completed_new and completed and not self._is_indexed:
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            found.append(invalid("status.completedIndexes", completed, detail))
        if is_failed_new and failed is not None and not is_per_index:
            detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            found.append(invalid("status.failedIndexes", failed, detail))
        if (is_completed_new or is_failed_new) and completions is not None and isinstance(failed, str):
            shared = overlap(completed, failed, completions)
            if shared is not None:
                detail = f"failedIndexes and completedIndexes overlap at index: {shared}"
                found.append(invalid("status.failedIndexes", failed, detail))
        return found

    def _check_pods(self) -> Findings:
        found: Findings = []
        terminating, ready = self._count("terminating"), self._count("ready")
        if self._is_finished and terminating > 0 and (self._ended() or self._changed("terminating")):
            found.append(invalid("status.terminating", terminating, "terminating>0 is invalid for finished job"))
        if self._changed("ready", "active") and ready > self._count("active"):
            found.append(invalid("status.ready", ready, "cannot set more ready pods than active"))
        return found

    def _check_success(self) -> Findings:
        wrong = {
            "cannot set SuccessCriteriaMet=True and Failed=true conditions": self._is_met and self._is_failed,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions": self._is_met and self._is_target,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True": (
                given(self._spec, "successPolicy") and self._is_complete and not self._is_met
            ),
        }
        return _told(wrong)

    def _check_change(self) -> Findings:
        found = _told(
            {
                f"cannot disable the terminal {type_}=True condition": has(self._before, type_)
                and not has(self._status, type_)
                for type_ in (_FAILED, _COMPLETE, _TARGET)
            }
        )
        if self._fell("failed"):
            found.append(invalid("status.failed", self._count("failed"), "cannot decrease the failed counter"))
        # An indexed job may shrink if its parallelism equals its completions.
        is_elastic = self._is_indexed and self._spec.get("completions") == self._spec.get("parallelism")
        if self._fell("succeeded") and not is_elastic:
            found.append(invalid("status.succeeded", self._count("succeeded"), "cannot decrease the succeeded counter"))
        start, end = text(self._status, "startTime"), text(self._status, "completionTime")
        if end and text(self._before, "completionTime") and self._changed("completionTime"):
            found.append(invalid(_COMPLETION_TIME, end, "field is immutable"))
        is_resumed = has(self._before, "Suspended") and has(self._status, "Suspended", "False")
        is_moved = bool(text(self._before, "startTime")) and self._changed("startTime")
        if is_moved and not is_resumed and not flag(self._spec, "suspend"):
            found.append(invalid("status.startTime", start or None, "field is immutable for unsuspended job once set"))
        wrong = {
            "cannot disable the SuccessCriteriaMet=True condition": has(self._before, _MET) and not self._is_met,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions": (
                has(self._before, _COMPLETE) and not has(self._before, _MET) and self._is_met
            ),
        }
        return found + _told(wrong)


def _told(wrong: dict[str, bool]) -> Findings:
    return [invalid_whole("status.conditions", message) for message, is_wrong in wrong.items() if is_wrong]


def _check_index_list(name: str, indexes: str, completions: int) -> Findings:
    problem = indexes_problem(indexes, completions)[1]
    return [invalid(child("status", name), indexes, f"error parsing {name}: {problem}")] if problem else []


def _seconds(time: str) -> float:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return 0.0
