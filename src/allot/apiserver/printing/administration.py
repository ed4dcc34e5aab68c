"""Rows of administrative kinds: access control, certificates, leases, admission, flow control, migration, evictions."""

from __future__ import annotations

from allot.apiserver.printing.cells import (
    NONE,
    UNKNOWN,
    UNSET,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    condition,
    count,
    duration,
    given,
    integer,
    is_true,
    items,
    labels,
    members,
    name_of,
    number,
    selector,
    shortened,
    text,
)

# --- rbac.authorization.k8s.io, certificates.k8s.io ---


def _binding(binding: Object, now: Moment) -> Cells:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in items(binding, "subjects"):
        kind, name, namespace = text(subject, "kind"), text(subject, "name"), text(subject, "namespace")
        shown = f"{namespace}/{name}" if kind == "ServiceAccount" and namespace else name
        subjects.get(kind, []).append(shown)
    role = members(binding, "roleRef")
    return [
        name_of(binding),
        f"{text(role, 'kind')}/{text(role, 'name')}",
        now.age(binding),
        *(", ".join(names) for names in subjects.values()),
    ]


def _signing_request(request: Object, now: Moment) -> Cells:
    spec = members(request, "spec")
    expiration = number(spec, "expirationSeconds")
    return [
        name_of(request),
        now.age(request),
        text(spec, "signerName") or NONE,
        text(spec, "username"),
        NONE if expiration is None else duration(expiration),
        _signing_state(request),
    ]


def _signing_state(request: Object) -> str:
    types = {item.get("type") for item in items(request, "status", "conditions")}
    state = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    if "Failed" in types:
        state += ",Failed"
    return f"{state},Issued" if text(request, "status", "certificate") else state


def _pod_certificate(request: Object, _: Moment) -> Cells:
    spec = members(request, "spec")
    state = "Pending"
    for item in items(request, "status", "conditions"):
        if item.get("type") in ("Issued", "Denied", "Failed"):
            state = text(item, "type")
    shown = (text(spec, name) for name in ("podName", "serviceAccountName", "nodeName", "signerName"))
    return [name_of(request), *shown, state, labels(spec.get("unverifiedUserAnnotations"))]


# --- admissionregistration.k8s.io ---


def _policy(rules: str) -> Printer:
    def cells(policy: Object, now: Moment) -> Cells:
        kind = members(policy, "spec", "paramKind")
        shown = f"{text(kind, 'apiVersion')}/{text(kind, 'kind')}" if kind else UNSET
        return [name_of(policy), count(policy, "spec", rules), shown, now.age(policy)]

    return Printer(columns(f"Name|{rules.capitalize()}#|ParamKind|Age"), cells)


def _policy_binding(binding: Object, now: Moment) -> Cells:
    reference = members(binding, "spec", "paramRef")
    shown = UNSET
    if text(reference, "name"):
        shown = f"{text(reference, 'namespace') or '*'}/{text(reference, 'name')}"
    elif given(reference, "selector"):
        shown = selector(reference["selector"])
    return [name_of(binding), text(binding, "spec", "policyName"), shown, now.age(binding)]


_POLICY_BINDING = Printer(columns("Name|PolicyName|ParamRef|Age"), _policy_binding)
_WEBHOOKS = Printer(columns("Name|Webhooks#|Age"), lambda o, now: [name_of(o), count(o, "webhooks"), now.age(o)])


# --- flow control, aggregation, migration, lifecycle ---


def _flow_schema(schema: Object, now: Moment) -> Cells:
    spec, dangling = members(schema, "spec"), condition(schema, "Dangling")
    return [
        name_of(schema),
        text(spec, "priorityLevelConfiguration", "name"),
        integer(spec, "matchingPrecedence"),
        text(spec, "distinguisherMethod", "type") or NONE,
        now.age(schema),
        "?" if dangling is None else text(dangling, "status"),
    ]


def _priority_level(level: Object, now: Moment) -> Cells:
    limited = members(level, "spec", "limited")
    queuing = members(limited, "limitResponse", "queuing")
    numbers = [number(limited, "nominalConcurrencyShares")]
    numbers += [number(queuing, name) for name in ("queues", "handSize", "queueLengthLimit")]
    shown = (NONE if item is None else item for item in numbers)
    return [name_of(level), text(level, "spec", "type"), *shown, now.age(level)]


def _api_service(service: Object, now: Moment) -> Cells:
    target = members(service, "spec", "service")
    shown = f"{text(target, 'namespace')}/{text(target, 'name')}" if target else "Local"
    available = condition(service, "Available") or {}
    state = text(available, "status") or "Unknown"
    if state != "True" and text(available, "reason"):
        state = f"{state} ({text(available, 'reason')})"
    return [name_of(service), shown, state, now.age(service)]


def _migration(migration: Object, _: Moment) -> Cells:
    resource = members(migration, "spec", "resource")
    group = text(resource, "group")
    states = [
        text(item, "type")
        for item in items(migration, "status", "conditions")
        if is_true(item) and item.get("type") in ("Running", "Failed", "Succeeded")
    ]
    shown = f"{text(resource, 'resource')}.{group}" if group else text(resource, "resource")
    return [name_of(migration), shown, states[-1] if states else "Unknown"]


def _storage_version(version: Object, now: Moment) -> Cells:
    status = members(version, "status")
    servers = [
        f"{text(item, 'apiServerID')}={text(item, 'encodingVersion')}" for item in items(status, "storageVersions")
    ]
    encoding = text(status, "commonEncodingVersion") or UNSET
    return [name_of(version), encoding, shortened(servers) if servers else UNSET, now.age(version)]


def _eviction_target(eviction: Object) -> tuple[str, str]:
    pod = members(eviction, "spec", "target").get("pod")
    return (text(pod, "name"), "Pod") if isinstance(pod, dict) else (UNSET, UNSET)


def _eviction_state(eviction: Object) -> str:
    for type_ in ("TargetEvicted", "Failed"):
        found = condition(eviction, type_)
        if found is not None and is_true(found):
            return f"{type_} ({text(found, 'reason')})"
    return "Progressing" if integer(eviction, "status", "observedGeneration") > 0 else "Pending"


def _eviction_request(request: Object, now: Moment) -> Cells:
    spec = members(request, "spec")
    state = _eviction_state(request)
    return [
        name_of(request),
        *_eviction_target(request),
        state,
        text(spec, "requester"),
        text(spec, "intent"),
        now.age(request),
    ]


def _eviction(eviction: Object, now: Moment) -> Cells:
    status = members(eviction, "status")
    listed = items(status, "targetResponders")
    ended = [item for item in listed if item.get("state") in ("Canceled", "Interrupted", "Completed")]
    active = [item for item in listed if item.get("state") == "Active"]
    current = active[-1] if active else ended[-1] if ended else None
    name = text(current, "name") if current else UNSET
    willing = sorted(text(item, "name") for item in items(status, "requesters") if item.get("intent") != "Withdrawn")
    requesters = "<withdrawn>" if items(status, "requesters") else NONE
    if willing:
        requesters = f"{willing[0]} + {len(willing) - 1} more..." if len(willing) > 1 else willing[0]
    reported = next((item for item in items(status, "responders") if current and item.get("name") == name), None)
    state, expected, heartbeat, message = _responder(current, reported, now)
    return [
        name_of(eviction),
        *_eviction_target(eviction),
        _eviction_state(eviction),
        f"{name} ({len(ended) + len(active)}/{len(listed)})",
        state,
        expected,
        requesters,
        now.age(eviction),
        heartbeat,
        message,
    ]


def _responder(current: Object | None, reported: Object | None, now: Moment) -> tuple[str, str, str, str]:
    if current is None or reported is None:
        return UNSET, UNKNOWN, UNSET, UNSET
    state, expected = text(current, "state"), UNKNOWN
    if state != "Active":
        expected = "-"
        if state == "Completed" and given(reported, "completionTime"):
            state = f"{state} ({now.since(reported['completionTime'])} ago)"
    elif given(reported, "startTime"):
        state = f"Started ({now.since(reported['startTime'])} ago)"
        if given(reported, "expectedCompletionTime"):
            until = now.until(reported["expectedCompletionTime"])
            past = f"{now.since(reported['expectedCompletionTime'])} ago"
            expected = past if until == "<invalid>" else f"in {until}"
    heartbeat = f"{now.since(reported['heartbeatTime'])} ago" if given(reported, "heartbeatTime") else UNSET
    return state, expected, heartbeat, text(reported, "message").strip() or UNSET


_RBAC_BINDING = Printer(columns("Name|Role|Age|Users+|Groups+|ServiceAccounts+"), _binding)

PRINTERS: dict[tuple[str, str], Printer] = {
    ("rbac.authorization.k8s.io", "RoleBinding"): _RBAC_BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _RBAC_BINDING,
    ("certificates.k8s.io", "CertificateSigningRequest"): Printer(
        columns("Name|Age|SignerName|Requestor|RequestedDuration|Condition"), _signing_request
    ),
    ("certificates.k8s.io", "ClusterTrustBundle"): Printer(
        columns("Name|SignerName"), lambda o, _: [name_of(o), text(o, "spec", "signerName") or NONE]
    ),
    ("certificates.k8s.io", "PodCertificateRequest"): Printer(
        columns("Name|PodName|ServiceAccountName|NodeName|SignerName|State|UnverifiedUserAnnotations"), _pod_certificate
    ),
    ("coordination.k8s.io", "Lease"): Printer(
        columns("Name|Holder|Age"), lambda o, now: [name_of(o), text(o, "spec", "holderIdentity"), now.age(o)]
    ),
    ("coordination.k8s.io", "LeaseCandidate"): Printer(
        columns("Name|LeaseName|BinaryVersion|EmulationVersion|Age"),
        lambda o, now: [
            name_of(o),
            *(text(o, "spec", name) for name in ("leaseName", "binaryVersion", "emulationVersion")),
            now.age(o),
        ],
    ),
    ("node.k8s.io", "RuntimeClass"): Printer(
        columns("Name|Handler|Age"), lambda o, now: [name_of(o), text(o, "handler"), now.age(o)]
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _policy("validations"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): _policy("mutations"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): _POLICY_BINDING,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): Printer(
        columns("Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL"), _flow_schema
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): Printer(
        columns("Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age"), _priority_level
    ),
    ("apiregistration.k8s.io", "APIService"): Printer(columns("Name|Service|Available|Age"), _api_service),
    ("storagemigration.k8s.io", "StorageVersionMigration"): Printer(columns("Name|Resource|Status"), _migration),
    ("internal.apiserver.k8s.io", "StorageVersion"): Printer(
        columns("Name|CommonEncodingVersion|StorageVersions|Age"), _storage_version
    ),
    ("lifecycle.k8s.io", "EvictionRequest"): Printer(
        columns("Name|Target|Target Type|Status|Requester|Intent|Age"), _eviction_request
    ),
    ("lifecycle.k8s.io", "Eviction"): Printer(
        columns(
            "Name|Target|Target Type|Status|Active Responder|Responder Status|Responder Expected Finish|Requesters|Age"
            "|Responder Heartbeat+|Responder Status Message+"
        ),
        _eviction,
    ),
}
