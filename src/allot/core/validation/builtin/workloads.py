"""Deployments, replica sets, stateful sets, daemon sets, replication controllers, controller revisions, pod templates.

Not covered: warnings about overlapping strategies, the volumes of claim templates beyond their names, rollback.
"""

from __future__ import annotations

from typing import Any

from allot.core.validation import formats
from allot.core.validation.builtin.checks import (
    at_most_all,
    immutable,
    int_or_percent,
    is_empty_selector,
    is_percent,
    label_selector,
    not_negative,
    one_of,
    selector_matches,
    told,
)
from allot.core.validation.builtin.pod_defaults import template_defaults
from allot.core.validation.builtin.pod_template import check_template
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    fill,
    fill_text,
    given,
    items,
    members,
    number,
    present,
    same,
    text,
)
from allot.core.validation.fields import Findings, child, forbidden, go_json, invalid, not_supported, required

_RETENTION = ("Delete", "Retain")


# --- defaults ---


def _deployment_defaults(deployment: Object) -> None:
    spec = present(deployment, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = present(spec, "strategy")
    fill_text(strategy, type="RollingUpdate")
    if strategy.get("type") == "RollingUpdate":
        fill(present(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    template_defaults(present(spec, "template"))


def _replica_set_defaults(replica_set: Object) -> None:
    spec = present(replica_set, "spec")
    fill(spec, replicas=1)
    template_defaults(present(spec, "template"))


def _controller_defaults(controller: Object) -> None:
    spec = present(controller, "spec")
    fill(spec, replicas=1)
    template_defaults(spec.get("template"))
    labels = members(spec, "template", "metadata", "labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = present(controller, "metadata")
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _stateful_set_defaults(stateful_set: Object) -> None:
    spec = present(stateful_set, "spec")
    fill_text(spec, podManagementPolicy="OrderedReady")
    strategy = present(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        fill(strategy, rollingUpdate={})
    if strategy.get("type") == "RollingUpdate" and isinstance(strategy.get("rollingUpdate"), dict):
        fill(strategy["rollingUpdate"], partition=0, maxUnavailable=1)
    fill_text(present(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    fill(spec, replicas=1, revisionHistoryLimit=10, serviceName="")
    template_defaults(present(spec, "template"))
    for claim in items(spec, "volumeClaimTemplates"):
        fill_text(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        fill(present(claim, "spec"), volumeMode="Filesystem")
        claim["status"] = {"phase": "Pending"}


def _daemon_set_defaults(daemon_set: Object) -> None:
    spec = present(daemon_set, "spec")
    strategy = present(spec, "updateStrategy")
    fill_text(strategy, type="RollingUpdate")
    if strategy.get("type") == "RollingUpdate":
        fill(present(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    fill(spec, revisionHistoryLimit=10)
    template_defaults(present(spec, "template"))


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _count_first_template(daemon_set: Object) -> None:
    _count_templates(daemon_set, max(_template_generation(daemon_set), 1))


def _count_template(daemon_set: Object, old: Object, _subresource: str) -> None:
    """The server sets the count: a client's value is ignored."""
    is_same = same(members(daemon_set, "spec").get("template"), members(old, "spec").get("template"))
    _count_templates(daemon_set, _template_generation(old) + (not is_same))


def _template_generation(daemon_set: Object) -> int:
    told = text(daemon_set, "metadata", "annotations", _TEMPLATE_GENERATION)
    return int(told) if told.isascii() and told.isdigit() and len(told) < 19 else 0


def _count_templates(daemon_set: Object, generation: int) -> None:
    annotations = present(present(daemon_set, "metadata"), "annotations")
    annotations[_TEMPLATE_GENERATION] = str(generation)


# --- shared rules ---


def selector_shown(selector: Any) -> Any:
    """A selector as Go prints it in error messages."""
    if not isinstance(selector, dict):
        return None
    shown: Object = {}
    if selector.get("matchLabels"):
        shown["matchLabels"] = dict(sorted(members(selector, "matchLabels").items()))
    if selector.get("matchExpressions"):
        shown["matchExpressions"] = selector["matchExpressions"]
    return shown


def _check_selector(spec: Object, empty_text: str, *, required_: bool = True) -> Findings:
    selector = spec.get("selector")
    if not isinstance(selector, dict):
        return [required("spec.selector")] if required_ else []
    found = label_selector(selector, "spec.selector")
    if is_empty_selector(selector):
        found.append(invalid("spec.selector", selector_shown(selector), empty_text))
    return found


def _check_template(spec: Object, who: str) -> Findings:
    """The template: matched by the selector, with restart policy Always and no deadline."""
    template = members(spec, "template")
    labels = members(template, "metadata", "labels")
    found: Findings = []
    selector = spec.get("selector")
    if isinstance(selector, dict) and not is_empty_selector(selector) and not selector_matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        shown = dict(sorted(labels.items())) if labels else None
        found.append(invalid("spec.template.metadata.labels", shown, detail))
    found += check_template(template, "spec.template")
    policy = text(template, "spec", "restartPolicy")
    if policy != "Always":
        found.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if given(template, "spec", "activeDeadlineSeconds"):
        where = "spec.template.spec.activeDeadlineSeconds"
        found.append(forbidden(where, f"activeDeadlineSeconds in {who} is not Supported"))
    return found


def _is_zero(value: Any) -> bool:
    return value in (0, "0%") or (is_percent(value) and not value[:-1].strip("0")) or value is None


def _selector_is_immutable(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return []
    selector, before = members(new, "spec").get("selector"), members(old, "spec").get("selector")
    if same(selector, before):
        return []
    return immutable(selector_shown(selector), selector_shown(before), "spec.selector")


# --- deployments and replica sets ---


def _check_deployment(deployment: Object) -> Findings:
    spec = members(deployment, "spec")
    found = not_negative(spec, "spec", "replicas")
    found += _check_selector(spec, "empty selector is invalid for deployment")
    found += _check_template(spec, "ReplicaSet")
    found += _check_deployment_strategy(members(spec, "strategy"))
    found += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = number(spec, "progressDeadlineSeconds")
    if deadline is not None and deadline <= (number(spec, "minReadySeconds") or 0):
        found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found


def _check_deployment_strategy(strategy: Object) -> Findings:
    path, rolling = "spec.strategy.rollingUpdate", members(strategy, "rollingUpdate")
    match text(strategy, "type"):
        case "Recreate":
            detail = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden(path, detail)] if given(strategy, "rollingUpdate") else []
        case "RollingUpdate":
            unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
            found = int_or_percent(unavailable, child(path, "maxUnavailable"))
            found += int_or_percent(surge, child(path, "maxSurge"))
            if _is_zero(unavailable) and _is_zero(surge):
                detail = "may not be 0 when `maxSurge` is 0"
                found.append(invalid(child(path, "maxUnavailable"), unavailable, detail))
            return found + at_most_all(unavailable, child(path, "maxUnavailable"))
        case other:
            shown = go_json({"Type": other, "RollingUpdate": strategy.get("rollingUpdate")})
            return [_unsupported("spec.strategy", shown, ("Recreate", "RollingUpdate"))]


def _unsupported(path: str, shown: str, supported: tuple[str, ...]) -> Any:
    finding = not_supported(path, "", supported)
    message = finding.error.message.replace('Unsupported value: ""', f"Unsupported value: {shown}", 1)
    return type(finding)(type(finding.error)(path, finding.error.type, message))


def _check_replica_set(replica_set: Object) -> Findings:
    spec = members(replica_set, "spec")
    found = not_negative(spec, "spec", "replicas", "minReadySeconds")
    found += _check_selector(spec, "empty selector is invalid for deployment")
    return found + _check_template(spec, "ReplicaSet")


def _check_controller(controller: Object) -> Findings:
    spec = members(controller, "spec")
    found = not_negative(spec, "spec", "minReadySeconds", "replicas")
    selector = members(spec, "selector")
    if not selector:
        found.append(required("spec.selector"))
    if not given(spec, "template"):
        return [*found, required("spec.template")]
    as_selector = {**spec, "selector": {"matchLabels": selector}} if selector else spec
    return found + _check_template(as_selector, "ReplicationController")


# --- stateful sets and daemon sets ---


def _check_stateful_set(stateful_set: Object) -> Findings:
    spec = members(stateful_set, "spec")
    found: Findings = []
    policy = text(spec, "podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        found.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    found += _check_stateful_strategy(members(spec, "updateStrategy"))
    retention = members(spec, "persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled"):
        found += one_of(retention, name, _RETENTION, "spec.persistentVolumeClaimRetentionPolicy")
    found += not_negative(spec, "spec", "replicas", "minReadySeconds")
    found += not_negative(members(spec, "ordinals"), "spec.ordinals", "start")
    service = text(spec, "serviceName")
    found += told("spec.serviceName", service, formats.dns_label(service)) if service else []
    found += _check_selector(spec, "empty selector is invalid for statefulset")
    return found + _check_template(_with_claimed_volumes(spec), "StatefulSet")


def _with_claimed_volumes(spec: Object) -> Object:
    """The spec with the volumes that claim templates will add, so that containers can mount them."""
    claims = [text(claim, "metadata", "name") for claim in items(spec, "volumeClaimTemplates")]
    template, pod_spec = members(spec, "template"), dict(members(spec, "template", "spec"))
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name]
    if volumes:
        pod_spec["volumes"] = volumes + [
            item for item in items(pod_spec, "volumes") if text(item, "name") not in claims
        ]
    pod_spec.pop("subdomain", None)
    pod_spec.pop("hostname", None)
    return {**spec, "template": {**template, "spec": pod_spec}}


def _check_stateful_strategy(strategy: Object) -> Findings:
    path, type_ = "spec.updateStrategy", text(strategy, "type")
    if type_ not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": type_, "RollingUpdate": strategy.get("rollingUpdate")}
        return [invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'")] if type_ else [required(path)]
    rolling = strategy.get("rollingUpdate")
    if type_ == "OnDelete" and rolling is not None:
        return [invalid(child(path, "rollingUpdate"), rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    where = child(path, "rollingUpdate")
    found = not_negative(members(strategy, "rollingUpdate"), where, "partition")
    unavailable = members(strategy, "rollingUpdate").get("maxUnavailable")
    if unavailable is not None:
        found += int_or_percent(unavailable, child(where, "maxUnavailable"))
        if _is_zero(unavailable):
            found.append(invalid(child(where, "maxUnavailable"), unavailable, "cannot be 0"))
        found += at_most_all(unavailable, child(where, "maxUnavailable"))
    return found


def _check_stateful_update(new: Object, old: Object, subresource: str) -> Findings:
    if subresource:
        return []
    found = _selector_is_immutable(new, old, subresource)
    spec, before = members(new, "spec"), members(old, "spec")
    for name in ("volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        found += immutable(spec.get(name), before.get(name), child("spec", name))
    return found


def _check_daemon_set(daemon_set: Object) -> Findings:
    spec = members(daemon_set, "spec")
    found = _check_selector(spec, "empty selector is invalid for daemonset", required_=False)
    found += _check_template(spec, "DaemonSet")
    found += not_negative(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    strategy, path = members(spec, "updateStrategy"), "spec.updateStrategy"
    match text(strategy, "type"):
        case "OnDelete":
            return found
        case "RollingUpdate":
            return found + _check_daemon_rolling(members(strategy, "rollingUpdate"), child(path, "rollingUpdate"))
        case other:
            shown = go_json({"Type": other, "RollingUpdate": strategy.get("rollingUpdate")})
            return [*found, _unsupported(path, shown, ("OnDelete", "RollingUpdate"))]


def _check_daemon_rolling(rolling: Object, path: str) -> Findings:
    found: Findings = []
    for name in ("maxUnavailable", "maxSurge"):
        found += int_or_percent(rolling.get(name), child(path, name))
    for name in ("maxUnavailable", "maxSurge"):
        found += at_most_all(rolling.get(name), child(path, name))
    unavailable, surge = not _is_zero(rolling.get("maxUnavailable")), not _is_zero(rolling.get("maxSurge"))
    if unavailable and surge:
        where = child(path, "maxSurge")
        found.append(invalid(where, rolling.get("maxSurge"), "may not be set when maxUnavailable is non-zero"))
    elif not unavailable and not surge:
        found.append(required(child(path, "maxUnavailable"), "cannot be 0 when maxSurge is 0"))
    return found


# --- pod templates and revisions ---


def _pod_template_defaults(template: Object) -> None:
    template_defaults(present(template, "template"))


def _check_revision(revision: Object) -> Findings:
    found, data = not_negative(revision, "", "revision"), revision.get("data")
    if data is None:
        found.append(required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        found.append(required("data", "data must be a valid JSON object"))
    return found


def _check_revision_update(new: Object, old: Object, _subresource: str) -> Findings:
    return not_negative(new, "", "revision") + immutable(new.get("data"), old.get("data"), "data")


DEPLOYMENT = Rules(
    defaults=_deployment_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    check=_check_deployment,
    check_update=_selector_is_immutable,
)
REPLICA_SET = Rules(
    defaults=_replica_set_defaults,
    initial_status=lambda _: {"replicas": 0},
    generation_of=("spec",),
    check=_check_replica_set,
    check_update=_selector_is_immutable,
)
REPLICATION_CONTROLLER = Rules(
    defaults=_controller_defaults,
    initial_status=lambda _: {"replicas": 0},
    generation_of=("spec",),
    check=_check_controller,
)
STATEFUL_SET = Rules(
    name_format=formats.dns_label,
    defaults=_stateful_set_defaults,
    initial_status=lambda _: {"availableReplicas": 0, "replicas": 0},
    generation_of=("spec",),
    check=_check_stateful_set,
    check_update=_check_stateful_update,
)
DAEMON_SET = Rules(
    defaults=_daemon_set_defaults,
    initial_status=lambda _: {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    generation_of=("spec",),
    prepare_create=_count_first_template,
    prepare_update=_count_template,
    check=_check_daemon_set,
    check_update=_selector_is_immutable,
)
POD_TEMPLATE = Rules(
    defaults=_pod_template_defaults,
    generation_of=("template",),
    check=lambda o: check_template(members(o, "template"), "template"),
)
CONTROLLER_REVISION = Rules(check=_check_revision, recheck=lambda _new, _old: [], check_update=_check_revision_update)
