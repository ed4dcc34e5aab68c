"""Autoscalers, disruption budgets, priority classes, leases, roles and their bindings.

Not covered: aggregation selectors beyond their form.
"""

from __future__ import annotations

from allot.core.validation import formats
from allot.core.validation.builtin.checks import (
    NEGATIVE_TEXT,
    at_most_all,
    immutable,
    int_or_percent,
    label_selector,
    named,
    not_negative,
    one_of,
    quantity,
    told,
)
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    copied,
    fill,
    fill_text,
    flag,
    given,
    items,
    members,
    number,
    present,
    same,
    text,
    texts,
)
from allot.core.validation.fields import Findings, child, forbidden, index, invalid, not_supported, required
from allot.core.validation.pod_resources import container_resource_name
from allot.core.validation.priority import SYSTEM_PRIORITIES

RBAC_GROUP = "rbac.authorization.k8s.io"

# --- autoscaling ---

_WINDOW_SECONDS_MAX = 3600
_PERIOD_SECONDS_MAX = 1800
_DEFAULT_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
_SCALE_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Object = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}


def _autoscaler_defaults(autoscaler: Object) -> None:
    spec = present(autoscaler, "spec")
    fill(spec, minReplicas=1)
    if not items(spec, "metrics"):
        spec["metrics"] = [copied(_DEFAULT_METRIC)]
    behavior = spec.get("behavior")
    if isinstance(behavior, dict):
        for name, default in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            fill(present(behavior, name), **copied(default))


def _check_autoscaler(autoscaler: Object, *, is_target_new: bool = True) -> Findings:
    """With the gate HPAScaleToZero, which is on."""
    spec = members(autoscaler, "spec")
    minimum, maximum = number(spec, "minReplicas"), number(spec, "maxReplicas") or 0
    found: Findings = []
    if minimum is not None and minimum < 0:
        found.append(invalid("spec.minReplicas", minimum, "must be greater than or equal to 0"))
    if maximum == 0:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif maximum < 0:
        found.append(invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1"))
    if minimum is not None and maximum < minimum:
        found.append(invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`"))
    target = members(spec, "scaleTargetRef")
    found += _check_reference(target, "spec.scaleTargetRef")
    if is_target_new:
        needs_group = text(target, "kind") != "ReplicationController"
        found += _check_version(target, "spec.scaleTargetRef", needs_group=needs_group)
    metrics = items(spec, "metrics")
    for position, metric in enumerate(metrics):
        found += _check_metric(metric, index("spec.metrics", position))
    if minimum == 0 and not any(text(metric, "type") in ("Object", "External") for metric in metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden("spec.metrics", detail))
    for name in ("scaleUp", "scaleDown"):
        if given(spec, "behavior", name):
            found += _check_scaling(members(spec, "behavior", name), child("spec.behavior", name))
    return found


def _recheck_autoscaler(new: Object, old: Object) -> Findings:
    """The scale target may keep a version that a new one may not use."""
    before, after = (members(each, "spec", "scaleTargetRef") for each in (old, new))
    is_same = all(text(before, name) == text(after, name) for name in ("apiVersion", "kind"))
    return _check_autoscaler(new, is_target_new=not is_same)


def _check_version(reference: Object, path: str, *, needs_group: bool) -> Findings:
    version = text(reference, "apiVersion")
    if version.count("/") > 1:
        return [invalid(child(path, "apiVersion"), version, f"unexpected GroupVersion string: {version}")]
    if needs_group and not version.rpartition("/")[0]:
        return [invalid(child(path, "apiVersion"), version, "apiVersion must specify API group")]
    return []


def _check_reference(reference: Object, path: str) -> Findings:
    found: Findings = []
    for name in ("kind", "name"):
        found += named(text(reference, name), child(path, name), formats.path_segment)
    return found


def _check_metric(metric: Object, path: str) -> Findings:
    type_ = text(metric, "type")
    found: Findings = []
    if not type_:
        found.append(required(child(path, "type"), "must specify a metric source type"))
    if type_ not in _SOURCES:
        found.append(not_supported(child(path, "type"), type_, _SOURCES))
    present_ = [
        source for source in ("object", "external", "pods", "resource", "containerResource") if given(metric, source)
    ]
    if present_:
        found += _check_source(present_[0], members(metric, present_[0]), child(path, present_[0]))
    wanted = _SOURCES.get(type_)
    if wanted is None:
        found.append(not_supported(child(path, "type"), type_, _SOURCES))
    elif wanted not in present_:
        found.append(required(child(path, wanted), "must populate information for the given metric source"))
    if len(present_) != 1:
        for source in sorted(set(present_) - {wanted}):
            found.append(forbidden(child(path, source), "must populate the given metric source only"))
    return found


def _check_source(source: str, value: Object, path: str) -> Findings:
    target, where = members(value, "target"), child(path, "target")
    found: Findings = []
    if source == "object":
        described = members(value, "describedObject")
        found += _check_reference(described, child(path, "describedObject"))
        found += _check_version(described, child(path, "describedObject"), needs_group=False)
    if source in ("resource", "containerResource"):
        name = text(value, "name")
        if not name:
            found.append(required(child(path, "name"), "must specify a resource name"))
        elif source == "containerResource":
            found += container_resource_name(name, child(path, "name"))
        if source == "containerResource":
            container = text(value, "container")
            missing = [required(child(path, "container"), "must specify a container")]
            found += told(child(path, "container"), container, formats.dns_label(container)) if container else missing
    else:
        name = text(value, "metric", "name")
        missing = [required(child(path, "metric", "name"), "must specify a metric name")]
        found += told(child(path, "metric", "name"), name, formats.path_segment(name)) if name else missing
    return found + _check_target(target, where) + _check_target_values(source, target, where)


def _check_target(target: Object, path: str) -> Findings:
    type_ = text(target, "type")
    found = [] if type_ else [required(child(path, "type"), "must specify a metric target type")]
    if type_ not in ("Utilization", "Value", "AverageValue"):
        found.append(invalid(child(path, "type"), type_, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        amount = quantity(target.get(name))
        if amount is not None and amount.sign() <= 0:
            found.append(invalid(child(path, name), amount, "must be positive"))
    utilization = number(target, "averageUtilization")
    if utilization is not None and utilization < 1:
        found.append(invalid(child(path, "averageUtilization"), utilization, "must be greater than 0"))
    return found


def _check_target_values(source: str, target: Object, path: str) -> Findings:
    value, average = given(target, "value"), given(target, "averageValue")
    if source in ("resource", "containerResource"):
        utilization = given(target, "averageUtilization")
        if not utilization and not average:
            detail = "must set either a target raw value or a target utilization"
            return [required(child(path, "averageUtilization"), detail)]
        detail = "may not set both a target raw value and a target utilization"
        return [forbidden(child(path, "averageValue"), detail)] if utilization and average else []
    if source == "pods":
        detail = "must specify a positive target averageValue"
        return [] if average else [required(child(path, "averageValue"), detail)]
    if not value and not average:
        detail = "must set either a target value or averageValue"
        if source == "external":
            detail = "must set either a target value for metric or a per-pod target"
        return [required(child(path, "averageValue"), detail)]
    if source == "external" and value and average:
        return [forbidden(child(path, "value"), "may not set both a target value for metric and a per-pod target")]
    return []


def _check_scaling(rules: Object, path: str) -> Findings:
    found: Findings = []
    window, where = number(rules, "stabilizationWindowSeconds"), child(path, "stabilizationWindowSeconds")
    if window is not None and window < 0:
        found.append(invalid(where, window, "must be greater than or equal to zero"))
    if window is not None and window > _WINDOW_SECONDS_MAX:
        found.append(invalid(where, window, f"must be less than or equal to {_WINDOW_SECONDS_MAX}"))
    found += one_of(rules, "selectPolicy", ("Disabled", "Max", "Min"), path)
    policies = items(rules, "policies")
    if not policies:
        found.append(required(child(path, "policies"), "must specify at least one Policy"))
    for position, policy in enumerate(policies):
        place = index(child(path, "policies"), position)
        found += one_of(policy, "type", ("Percent", "Pods"), place)
        for name in ("value", "periodSeconds"):
            if (number(policy, name) or 0) <= 0:
                found.append(invalid(child(place, name), number(policy, name) or 0, "must be greater than zero"))
        period = number(policy, "periodSeconds") or 0
        if period > _PERIOD_SECONDS_MAX:
            detail = f"must be less than or equal to {_PERIOD_SECONDS_MAX}"
            found.append(invalid(child(place, "periodSeconds"), period, detail))
    tolerance = quantity(rules.get("tolerance"))
    if tolerance is not None and tolerance.sign() < 0:
        found.append(invalid(child(path, "tolerance"), tolerance, NEGATIVE_TEXT))
    return found


AUTOSCALER = Rules(
    defaults=_autoscaler_defaults,
    initial_status=lambda _: {"currentMetrics": None, "desiredReplicas": 0},
    generation_of=("spec",),
    check=_check_autoscaler,
    recheck=_recheck_autoscaler,
)

# --- policy ---


def _check_budget(budget: Object) -> Findings:
    spec = members(budget, "spec")
    found: Findings = []
    if given(spec, "minAvailable") and given(spec, "maxUnavailable"):
        shown = {
            "MinAvailable": spec.get("minAvailable"),
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec.get("maxUnavailable"),
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        found.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        found += int_or_percent(spec.get(name), child("spec", name))
        found += at_most_all(spec.get(name), child("spec", name))
    found += label_selector(spec.get("selector"), "spec.selector")
    return found + one_of(spec, "unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"), "spec")


def _check_budget_status(new: Object, _old: Object, subresource: str) -> Findings:
    names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return not_negative(members(new, "status"), "status", *names) if subresource == "status" else []


DISRUPTION_BUDGET = Rules(
    defaults=lambda o: fill(o, spec={}),
    initial_status=lambda _: {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
    generation_of=("spec",),
    check=_check_budget,
    check_update=_check_budget_status,
)

# --- scheduling, coordination ---

USER_PRIORITY_MAX = 1_000_000_000
_SYSTEM_PREFIX = "system-"


def _check_priority_class(class_: Object) -> Findings:
    name, value = text(class_, "metadata", "name"), number(class_, "value") or 0
    found: Findings = []
    if name.startswith(_SYSTEM_PREFIX):
        problem = _system_class_problem(name, value, flag(class_, "globalDefault"))
        if problem:
            detail = f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
            found.append(forbidden("metadata.name", detail))
    elif value > USER_PRIORITY_MAX:
        found.append(forbidden("value", f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"))
    return found + one_of(class_, "preemptionPolicy", ("Never", "PreemptLowerPriority"), "")


def _system_class_problem(name: str, value: int, is_default: bool) -> str:
    expected = SYSTEM_PRIORITIES.get(name)
    if expected is None:
        return f"{name} is not a known system priority class"
    if value != expected:
        return f"value of {name} PriorityClass must be {expected}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def _check_priority_class_update(new: Object, old: Object, _subresource: str) -> Findings:
    found: Findings = []
    if (number(new, "value") or 0) != (number(old, "value") or 0):
        found.append(forbidden("value", "may not be changed in an update."))
    return found + immutable(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


def _priority_class_defaults(class_: Object) -> None:
    fill(class_, value=0)
    fill_text(class_, preemptionPolicy="PreemptLowerPriority")


PRIORITY_CLASS = Rules(
    defaults=_priority_class_defaults,
    generation_of=("value",),
    check=_check_priority_class,
    check_update=_check_priority_class_update,
)


def _check_lease(lease: Object) -> Findings:
    spec = members(lease, "spec")
    found: Findings = []
    seconds, transitions = number(spec, "leaseDurationSeconds"), number(spec, "leaseTransitions")
    if seconds is not None and seconds <= 0:
        found.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if text(spec, "preferredHolder") and not text(spec, "strategy"):
        found.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return found


LEASE = Rules(defaults=lambda o: fill(o, spec={}), check=_check_lease)

# --- rbac ---


def _check_rule(rule: Object, namespaced: bool, path: str) -> Findings:
    found: Findings = []
    if not texts(rule, "verbs"):
        found.append(required(child(path, "verbs"), "verbs must contain at least one value"))
    paths = texts(rule, "nonResourceURLs")
    if paths:
        where = child(path, "nonResourceURLs")
        if namespaced:
            found.append(invalid(where, paths, "namespaced rules cannot apply to non-resource URLs"))
        if texts(rule, "apiGroups") or texts(rule, "resources") or texts(rule, "resourceNames"):
            found.append(invalid(where, paths, "rules cannot apply to both regular resources and non-resource URLs"))
        return found
    if not texts(rule, "apiGroups"):
        found.append(required(child(path, "apiGroups"), "resource rules must supply at least one api group"))
    if not texts(rule, "resources"):
        found.append(required(child(path, "resources"), "resource rules must supply at least one resource"))
    return found


def _check_rules(role: Object, namespaced: bool) -> Findings:
    rules = enumerate(items(role, "rules"))
    return [found for position, rule in rules for found in _check_rule(rule, namespaced, index("rules", position))]


def _check_cluster_role(role: Object) -> Findings:
    found = _check_rules(role, namespaced=False)
    if given(role, "aggregationRule"):
        selectors, path = items(role, "aggregationRule", "clusterRoleSelectors"), "aggregationRule.clusterRoleSelectors"
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            found.append(required(path, detail))
        for position, selector in enumerate(selectors):
            found += label_selector(selector, index(path, position))
    return found


def _binding_defaults(binding: Object) -> None:
    fill_text(present(binding, "roleRef"), apiGroup=RBAC_GROUP)
    for subject in items(binding, "subjects"):
        if text(subject, "kind") in ("User", "Group"):
            fill_text(subject, apiGroup=RBAC_GROUP)


def _check_binding(binding: Object, kinds: tuple[str, ...], namespaced: bool) -> Findings:
    role = members(binding, "roleRef")
    found = one_of({"apiGroup": text(role, "apiGroup") or "?"}, "apiGroup", (RBAC_GROUP,), "roleRef")
    if text(role, "kind") not in kinds:
        found.append(not_supported("roleRef.kind", text(role, "kind"), kinds))
    found += named(text(role, "name"), "roleRef.name", formats.path_segment)
    for position, subject in enumerate(items(binding, "subjects")):
        found += _check_subject(subject, namespaced, index("subjects", position))
    return found


def _check_subject(subject: Object, namespaced: bool, path: str) -> Findings:
    name, group, kind = text(subject, "name"), text(subject, "apiGroup"), text(subject, "kind")
    found = [] if name else [required(child(path, "name"))]
    if kind == "ServiceAccount":
        found += told(child(path, "name"), name, formats.dns_subdomain(name)) if name else []
        if group:
            found.append(not_supported(child(path, "apiGroup"), group, ("",)))
        if not namespaced and not text(subject, "namespace"):
            found.append(required(child(path, "namespace")))
    elif kind in ("User", "Group"):
        if group != RBAC_GROUP:
            found.append(not_supported(child(path, "apiGroup"), group, (RBAC_GROUP,)))
    else:
        found.append(not_supported(child(path, "kind"), kind, ("Group", "ServiceAccount", "User")))
    return found


def _check_binding_update(new: Object, old: Object, _subresource: str) -> Findings:
    role, before = members(new, "roleRef"), members(old, "roleRef")
    shown = {"APIGroup": text(role, "apiGroup"), "Kind": text(role, "kind"), "Name": text(role, "name")}
    return [] if same(role, before) else [invalid("roleRef", shown, "field is immutable")]


ROLE = Rules(
    name_format=formats.path_segment,
    defaults=lambda o: o.setdefault("rules", None),
    check=lambda o: _check_rules(o, namespaced=True),
)
CLUSTER_ROLE = Rules(
    name_format=formats.path_segment, defaults=lambda o: o.setdefault("rules", None), check=_check_cluster_role
)
ROLE_BINDING = Rules(
    name_format=formats.path_segment,
    defaults=_binding_defaults,
    check=lambda o: _check_binding(o, ("ClusterRole", "Role"), namespaced=True),
    check_update=_check_binding_update,
)
CLUSTER_ROLE_BINDING = Rules(
    name_format=formats.path_segment,
    defaults=_binding_defaults,
    check=lambda o: _check_binding(o, ("ClusterRole",), namespaced=False),
    check_update=_check_binding_update,
)
