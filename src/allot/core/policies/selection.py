"""Which webhooks and policies apply to a request."""

from __future__ import annotations

from allot.core.validation import formats
from allot.core.validation.builtin.checks import label_selector, one_of, told
from allot.core.validation.builtin.values import Object, fill, fill_text, items, members, text, texts
from allot.core.validation.fields import Findings, child, duplicate, index, invalid, not_supported, required

_MATCH_POLICIES = ("Equivalent", "Exact")
_SCOPES = ("*", "Cluster", "Namespaced")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")


def selection_defaults(value: Object) -> None:
    """What a webhook or a policy that does not say it selects."""
    fill_text(value, matchPolicy="Equivalent")
    fill(value, namespaceSelector={}, objectSelector={})
    for name in ("rules", "resourceRules", "excludeResourceRules"):
        for rule in items(value, name):
            fill_text(rule, scope="*")


def _check_alone(values: list[str], path: str, what: str) -> Findings:
    if len(values) > 1 and "*" in values:
        return [invalid(path, values, f"if '*' is present, must not specify other {what}")]
    return []


def check_rule(rule: Object, path: str) -> Findings:
    """Operations on resources."""
    operations, where = texts(rule, "operations"), child(path, "operations")
    found = [] if operations else [required(where)]
    found += _check_alone(operations, where, "operations")
    for position, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            found.append(not_supported(index(where, position), operation, _OPERATIONS))
    for name, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values, where = texts(rule, name), child(path, name)
        found += _check_alone(values, where, what) if values else [required(where)]
    for position, version in enumerate(texts(rule, "apiVersions")):
        if not version:
            found.append(required(index(child(path, "apiVersions"), position)))
    found += _check_resources(texts(rule, "resources"), child(path, "resources"))
    return found + one_of(rule, "scope", _SCOPES, path)


def _check_resources(resources: list[str], path: str) -> Findings:
    found = [] if resources else [required(path)]
    every_subresource: set[str] = set()
    of_every_resource: set[str] = set()
    plain = False
    for position, each in enumerate(resources):
        where = index(path, position)
        if not each:
            found.append(required(where))
            continue
        resource, slash, subresource = each.partition("/")
        if not slash:
            plain = each != "*"
            continue
        if resource in every_subresource:
            found.append(invalid(where, each, f"if '{resource}/*' is present, must not specify {each}"))
        if subresource in of_every_resource:
            found.append(invalid(where, each, f"if '*/{subresource}' is present, must not specify {each}"))
        if subresource == "*":
            every_subresource.add(resource)
        if resource == "*":
            of_every_resource.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        found.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if plain and "*" in resources:
        detail = "if '*' is present, must not specify other resources without subresources"
        found.append(invalid(path, resources, detail))
    return found


def check_match_resources(value: Object, path: str, *, mutating: bool = False) -> Findings:
    """matchConstraints or matchResources. mutating: of requests that can be mutated."""
    found = one_of(value, "matchPolicy", _MATCH_POLICIES, path, needed=True)
    for name in ("namespaceSelector", "objectSelector"):
        found += label_selector(members(value, name), child(path, name))
    for name in ("resourceRules", "excludeResourceRules"):
        for position, rule in enumerate(items(value, name)):
            where = index(child(path, name), position)
            seen = set()
            for number_, resource in enumerate(texts(rule, "resourceNames")):
                place = index(child(where, "resourceNames"), number_)
                found += told(place, resource, formats.path_segment(resource))
                if resource in seen:
                    found.append(duplicate(place, resource))
                seen.add(resource)
            found += check_rule(rule, where)
    for rule in items(value, "resourceRules") if mutating else ():
        for operation in texts(rule, "operations"):
            if operation not in _MUTATING_OPERATIONS:
                where = child(path, "resourceRules", "operations")
                found.append(not_supported(where, operation, _MUTATING_OPERATIONS))
    return found


def check_param_kind(kind: Object, path: str) -> Findings:
    """The kind of a policy's parameters."""
    found: Findings = []
    api_version, where = text(kind, "apiVersion"), child(path, "apiVersion")
    group, _, version = api_version.rpartition("/")
    if not api_version:
        found.append(required(where))
    elif api_version.count("/") > 1:
        found.append(invalid(where, api_version, f"unexpected GroupVersion string: {api_version}"))
    else:
        if group and formats.dns_subdomain(group):
            found.append(invalid(where, group, ",".join(formats.dns_subdomain(group))))
        if not version:
            found.append(invalid(where, api_version, "version must be specified"))
        elif formats.dns_label_1035(version):
            found.append(invalid(where, version, ",".join(formats.dns_label_1035(version))))
    name, where = text(kind, "kind"), child(path, "kind")
    messages = formats.dns_label_1035(name.lower())
    if not name:
        found.append(required(where))
    elif messages:
        detail = f"may have mixed case, but should otherwise match: {','.join(messages)}"
        found.append(invalid(where, name, detail))
    return found
