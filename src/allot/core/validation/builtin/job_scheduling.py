"""spec.scheduling of a job: configures its Workload and PodGroup. Only the size of a gang may change later."""

from __future__ import annotations

from allot.core.features import FeatureGates
from allot.core.model.batch_v1 import JobSchedulingConfiguration, JobSpec
from allot.core.model.codec import DecodeError, decode
from allot.core.validation.builtin.values import Object, given, members, number
from allot.core.validation.declarative import check
from allot.core.validation.fields import Findings, child, invalid
from allot.core.validation.rules_scheduling import SCHEMA


def check_scheduling(spec: Object, before: Object | None, path: str, gates: FeatureGates) -> Findings:
    """spec.scheduling of a job. before: the spec that it replaces."""
    found: Findings = []
    new, old = _read(spec), None if before is None else _read(before)
    where = child(path, "scheduling")
    if new is not None:
        found += _check_count(spec, where)
        policy = members(spec, "scheduling", "schedulingPolicy")
        is_basic = given(policy, "basic") or not given(policy, "gang")
        mode = members(spec, "scheduling", "disruptionMode")
        if is_basic and given(mode, "all") and not given(mode, "single"):
            detail = "the disruptionMode `all` is not supported with the Basic scheduling policy"
            found.append(invalid(child(where, "disruptionMode"), "", detail))
        if old is not None and old.scheduling_policy is not None and new.scheduling_policy is not None:
            was_basic, is_basic = old.scheduling_policy.basic is not None, new.scheduling_policy.basic is not None
            if was_basic != is_basic:
                detail = (
                    "the basic/gang policy variant is immutable after creation; only schedulingPolicy.gang.minCount may "
                    "be updated"
                )
                found.append(invalid(child(where, "schedulingPolicy"), None, detail))
    previous = None if before is None else JobSpec(scheduling=old)
    return found + check(SCHEMA, gates, JobSpec(scheduling=new), previous, path)


def _check_count(spec: Object, path: str) -> Findings:
    count = number(spec, "scheduling", "schedulingPolicy", "gang", "minCount")
    parallelism = number(spec, "parallelism")
    parallelism = 1 if parallelism is None else parallelism
    if count is None or count <= parallelism:
        return []
    detail = f"must not be greater than parallelism ({parallelism})"
    return [invalid(child(path, "schedulingPolicy", "gang", "minCount"), count, detail)]


def _read(spec: Object) -> JobSchedulingConfiguration | None:
    """The typed value; None if it is absent or invalid; the schema reports the latter."""
    if not given(spec, "scheduling"):
        return None
    try:
        return decode(spec["scheduling"], JobSchedulingConfiguration).object
    except DecodeError:
        return None
