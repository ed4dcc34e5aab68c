"""DeviceTaintRule: handwritten rules for spec and status."""

from __future__ import annotations

from allot.core.model.resource_v1 import DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from allot.core.validation.fields import Findings, child, too_many
from allot.core.validation.names import check_driver_name, check_label, check_pool_name
from allot.core.validation.object_meta import check_conditions, check_object_meta, check_object_meta_update
from allot.core.validation.taints import check_taint

CONDITIONS_MAX = 8


def check_create(rule: DeviceTaintRule) -> Findings:
    """A new rule."""
    return check_object_meta(rule.metadata, namespaced=False) + _check_spec(rule.spec, None)


def check_update(new: DeviceTaintRule, old: DeviceTaintRule) -> Findings:
    """A changed rule."""
    return check_object_meta_update(new.metadata, old.metadata) + _check_spec(new.spec, old.spec)


def check_status_update(new: DeviceTaintRule, old: DeviceTaintRule) -> Findings:
    """A write to the status subresource."""
    path = "status.conditions"
    found = check_object_meta_update(new.metadata, old.metadata)
    found += check_conditions(new.status.conditions, path)
    if len(new.status.conditions) > CONDITIONS_MAX:
        found.append(too_many(path, len(new.status.conditions), CONDITIONS_MAX))
    return found


def _check_spec(spec: DeviceTaintRuleSpec, old: DeviceTaintRuleSpec | None, path: str = "spec") -> Findings:
    found: Findings = []
    if spec.device_selector is not None:
        found += _check_selector(spec.device_selector, child(path, "deviceSelector"))
    return found + check_taint(spec.taint, child(path, "taint"), old.taint if old is not None else None)


def _check_selector(selector: DeviceTaintSelector, path: str) -> Findings:
    found: Findings = []
    if selector.driver is not None:
        found += check_driver_name(selector.driver, child(path, "driver"))
    if selector.pool is not None:
        found += check_pool_name(selector.pool, child(path, "pool"))
    if selector.device is not None:
        found += check_label(selector.device, child(path, "device"))
    return found
