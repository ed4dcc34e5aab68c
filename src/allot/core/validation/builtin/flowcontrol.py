"""Priority and fairness: flow schemas and priority levels.

Two of each, `exempt` and `catch-all`, have a fixed spec, so that a server can always make progress.
"""

from __future__ import annotations

import math
from typing import Any

from allot.core.validation import formats
from allot.core.validation.builtin.checks import told
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import (
    Object,
    fill,
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
from allot.core.validation.fields import (
    Findings,
    GoValue,
    child,
    duplicate,
    forbidden,
    go_json,
    index,
    invalid,
    not_supported,
    required,
)

_PRECEDENCE_MAX = 10_000
_QUEUES_MAX = 10_000_000
_HASH_BITS_MAX = 60
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
# The field that a subject of each kind must set; it must not set the others.
_SUBJECTS = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}
_SUBJECT_ORDER = ("serviceAccount", "user", "group")
_ROUND_TRIP = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"


def _group_subject(name: str) -> Object:
    return {"kind": "Group", "group": {"name": name}}


_EVERYTHING: Object = {
    "resourceRules": [
        {"apiGroups": ["*"], "clusterScope": True, "namespaces": ["*"], "resources": ["*"], "verbs": ["*"]}
    ],
    "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
}
_FIXED_SCHEMAS: dict[str, Object] = {
    "exempt": {
        "priorityLevelConfiguration": {"name": "exempt"},
        "matchingPrecedence": 1,
        "rules": [{"subjects": [_group_subject("system:masters")], **_EVERYTHING}],
    },
    "catch-all": {
        "priorityLevelConfiguration": {"name": "catch-all"},
        "matchingPrecedence": _PRECEDENCE_MAX,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [
            {
                "subjects": [_group_subject("system:unauthenticated"), _group_subject("system:authenticated")],
                **_EVERYTHING,
            }
        ],
    },
}
_FIXED_LEVELS: dict[str, Object] = {
    "exempt": {"type": "Exempt"},
    "catch-all": {
        "type": "Limited",
        "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
    },
}


def _shown(value: Any) -> GoValue:
    return GoValue(go_json(value))


# --- flow schemas ---


def _schema_defaults(schema: Object) -> None:
    spec = present(schema, "spec")
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = 1000


def _check_schema(schema: Object) -> Findings:
    name, spec = text(schema, "metadata", "name"), members(schema, "spec")
    found: Findings = []
    precedence, where = number(spec, "matchingPrecedence") or 0, "spec.matchingPrecedence"
    if precedence <= 0:
        found.append(invalid(where, precedence, "must be a positive value"))
    if precedence > _PRECEDENCE_MAX:
        found.append(invalid(where, precedence, f"must not be greater than {_PRECEDENCE_MAX}"))
    if precedence == 1 and name != "exempt":
        found.append(invalid(where, precedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
    if given(spec, "distinguisherMethod") and text(spec, "distinguisherMethod", "type") not in _DISTINGUISHERS:
        type_ = text(spec, "distinguisherMethod", "type")
        found.append(not_supported("spec.distinguisherMethod.type", {"Type": type_}, _DISTINGUISHERS))
    level, where = text(spec, "priorityLevelConfiguration", "name"), "spec.priorityLevelConfiguration.name"
    found += (
        told(where, level, formats.dns_subdomain(level))
        if level
        else [required(where, "must reference a priority level")]
    )
    for position, rule in enumerate(items(spec, "rules")):
        found += _check_rule(rule, index("spec.rules", position))
    if name in _FIXED_SCHEMAS and not same(spec, _FIXED_SCHEMAS[name]):
        found.append(invalid("spec", _shown(spec), f"spec of '{name}' must equal the fixed value"))
    return found


def _check_rule(rule: Object, path: str) -> Findings:
    found: Findings = []
    subjects = items(rule, "subjects")
    if not subjects:
        found.append(required(child(path, "subjects"), "subjects must contain at least one value"))
    for position, subject in enumerate(subjects):
        found += _check_subject(subject, index(child(path, "subjects"), position))
    resources, others = items(rule, "resourceRules"), items(rule, "nonResourceRules")
    if not resources and not others:
        found.append(required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for position, each in enumerate(resources):
        found += _check_resource_rule(each, index(child(path, "resourceRules"), position))
    for position, each in enumerate(others):
        found += _check_other_rule(each, index(child(path, "nonResourceRules"), position))
    return found


def _check_subject(subject: Object, path: str) -> Findings:
    kind = text(subject, "kind")
    if kind not in _SUBJECTS:
        return [not_supported(child(path, "kind"), kind, _SUBJECTS)]
    member = _SUBJECTS[kind]
    where = child(path, member)
    found: Findings = []
    if not given(subject, member):
        found.append(required(where, f"{member} is required when subject kind is '{kind}'"))
    else:
        name = text(subject, member, "name")
        if not name:
            found.append(required(child(where, "name")))
        elif kind == "ServiceAccount" and name != "*":
            found += told(child(where, "name"), name, formats.dns_subdomain(name))
        if kind == "ServiceAccount":
            namespace, place = text(subject, member, "namespace"), child(where, "namespace")
            missing = [required(place, "must specify namespace for service account")]
            found += told(place, namespace, formats.dns_label(namespace)) if namespace else missing
    for other in _SUBJECT_ORDER:
        if other != member and given(subject, other):
            owner = next(each for each, name in _SUBJECTS.items() if name == other)
            found.append(forbidden(child(path, other), f"{other} is forbidden when subject kind is not '{owner}'"))
    return found


def _check_verbs(rule: Object, path: str) -> Findings:
    verbs, where = texts(rule, "verbs"), child(path, "verbs")
    if not verbs:
        return [required(where, "verbs must contain at least one value")]
    if "*" in verbs:
        return _check_alone(verbs, where, "verbs")
    return [] if set(_VERBS).issuperset(verbs) else [not_supported(where, verbs, _VERBS)]


def _check_alone(values: list[str], path: str, what: str) -> Findings:
    if "*" in values and len(values) > 1:
        return [invalid(path, values, f"if '*' is present, must not specify other {what}")]
    return []


def _check_resource_rule(rule: Object, path: str) -> Findings:
    found = _check_verbs(rule, path)
    for name, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values = texts(rule, name)
        missing = [required(child(path, name), f"resource rules must supply at least one {one}")]
        found += _check_alone(values, child(path, name), many) if values else missing
    namespaces, where = texts(rule, "namespaces"), child(path, "namespaces")
    if not namespaces and not flag(rule, "clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        found.append(required(where, detail))
    elif "*" in namespaces:
        found += _check_alone(namespaces, where, "namespaces")
    else:
        for position, namespace in enumerate(namespaces):
            for message in formats.dns_label(namespace):
                detail = f"each member of this list must be '*' or a DNS-1123 label; {message}"
                found.append(invalid(index(where, position), namespace, detail))
    return found


def _check_other_rule(rule: Object, path: str) -> Findings:
    found = _check_verbs(rule, path)
    urls, where = texts(rule, "nonResourceURLs"), child(path, "nonResourceURLs")
    if not urls:
        return [*found, required(where, "nonResourceURLs must contain at least one value")]
    if "*" in urls:
        return found + _check_alone(urls, where, "non-resource URLs")
    for position, url in enumerate(urls):
        problem = _url_problem(url)
        if problem:
            found.append(invalid(index(where, position), url, problem))
    return found


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if url == "/":
        return ""
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars == 1 and not url.endswith("/*")) else ""


# --- priority levels ---


def _level_defaults(level: Object) -> None:
    spec = present(level, "spec")
    if isinstance(spec.get("exempt"), dict):
        fill(spec["exempt"], nominalConcurrencyShares=0, lendablePercent=0)
    limited = spec.get("limited")
    if isinstance(limited, dict):
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = members(limited, "limitResponse").get("queuing")
        if isinstance(queuing, dict):
            for name, default in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
                if not queuing.get(name):
                    queuing[name] = default


def _check_level(level: Object) -> Findings:
    name, spec = text(level, "metadata", "name"), members(level, "spec")
    found: Findings = []
    if _ROUND_TRIP in members(level, "metadata", "annotations"):
        found.append(forbidden("metadata.annotations", f"annotation '{_ROUND_TRIP}' is forbidden"))
    type_ = text(spec, "type")
    if (name == "exempt") != (type_ == "Exempt"):
        found.append(invalid("spec.type", type_, "must be 'Exempt' if and only if `name` is 'exempt'"))
    if type_ == "Exempt":
        found += _check_shares(members(spec, "exempt"), "spec.exempt") + _check_lendable(
            members(spec, "exempt"), "spec.exempt"
        )
    elif type_ == "Limited" and given(spec, "limited"):
        found += _check_limited(members(spec, "limited"), "spec.limited")
    found += _check_union(spec, "spec", {"Exempt": "exempt", "Limited": "limited"}, needed=("limited",))
    return found + _check_fixed_level(name, spec)


def _check_fixed_level(name: str, spec: Object) -> Findings:
    fixed = _FIXED_LEVELS.get(name)
    if fixed is None:
        return []
    if name == "exempt":
        kept = {member: value for member, value in spec.items() if member != "exempt"}
        detail = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        return [] if same(kept, fixed) else [invalid("spec", _shown(spec), detail)]
    return [] if same(spec, fixed) else [invalid("spec", _shown(spec), f"spec of '{name}' must equal the fixed value")]


def _check_union(object_: Object, path: str, named: dict[str, str], needed: tuple[str, ...]) -> Findings:
    """A union: the type, and only the field that belongs to it."""
    type_, where = text(object_, "type"), child(path, "type")
    found: Findings = []
    if type_ and type_ not in _UNION_TYPES[path]:
        found.append(not_supported(where, type_, _UNION_TYPES[path]))
    for owner, name in named.items():
        if given(object_, name) and owner != type_:
            found.append(forbidden(child(path, name)))
        elif not given(object_, name) and owner == type_ and name in needed:
            found.append(required(child(path, name)))
    return found if type_ else [*found, required(where)]


_UNION_TYPES = {"spec": ("Exempt", "Limited"), "spec.limited.limitResponse": ("Queue", "Reject")}


def _check_shares(level: Object, path: str) -> Findings:
    shares = number(level, "nominalConcurrencyShares")
    if shares is None or shares >= 0:
        return []
    return [invalid(child(path, "nominalConcurrencyShares"), shares, "must be a non-negative integer")]


def _check_lendable(level: Object, path: str) -> Findings:
    percent = number(level, "lendablePercent")
    if percent is None or 0 <= percent <= 100:
        return []
    return [invalid(child(path, "lendablePercent"), percent, "must be between 0 and 100, inclusive")]


def _check_limited(limited: Object, path: str) -> Findings:
    found = _check_shares(limited, path)
    where, response = child(path, "limitResponse"), members(limited, "limitResponse")
    if text(response, "type") == "Queue" and given(response, "queuing"):
        found += _check_queuing(members(response, "queuing"), child(where, "queuing"))
    found += _check_union(response, where, {"Queue": "queuing"}, needed=("queuing",))
    found += _check_lendable(limited, path)
    limit = number(limited, "borrowingLimitPercent")
    if limit is not None and limit < 0:
        detail = "if specified, must be a non-negative integer"
        found.append(invalid(child(path, "borrowingLimitPercent"), limit, detail))
    return found


def _check_queuing(queuing: Object, path: str) -> Findings:
    found: Findings = []
    length, queues, hand = (number(queuing, name) or 0 for name in ("queueLengthLimit", "queues", "handSize"))
    if length <= 0:
        found.append(invalid(child(path, "queueLengthLimit"), length, "must be positive"))
    if queues <= 0:
        found.append(invalid(child(path, "queues"), queues, "must be positive"))
    elif queues > _QUEUES_MAX:
        found.append(invalid(child(path, "queues"), queues, f"must not be greater than {_QUEUES_MAX}"))
    where = child(path, "handSize")
    if hand <= 0:
        found.append(invalid(where, hand, "must be positive"))
    elif hand > queues:
        found.append(invalid(where, hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS_MAX:
        detail = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        found.append(invalid(where, hand, f"{detail} {_HASH_BITS_MAX}"))
    return found


# --- status, of both ---


def _check_status(new: Object, _old: Object, subresource: str) -> Findings:
    found: Findings = []
    seen = set()
    for position, condition in enumerate(items(new, "status", "conditions") if subresource == "status" else ()):
        where, type_ = child(index("status.conditions", position), "type"), text(condition, "type")
        if type_ in seen:
            found.append(duplicate(where, type_))
        seen.add(type_)
        if not type_:
            found.append(required(where))
    return found


FLOW_SCHEMA = Rules(
    defaults=_schema_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    check=_check_schema,
    check_update=_check_status,
)
PRIORITY_LEVEL = Rules(
    defaults=_level_defaults,
    initial_status=lambda _: {},
    generation_of=("spec",),
    check=_check_level,
    check_update=_check_status,
)
