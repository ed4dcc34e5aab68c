"""Rules for configurations of webhooks."""

from __future__ import annotations

from urllib.parse import urlsplit

from allot.core.policies.expressions import Expressions, check_conditions
from allot.core.policies.selection import check_rule, selection_defaults
from allot.core.validation import formats
from allot.core.validation.builtin.checks import label_selector, one_of, port_number, told
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, fill, fill_text, given, items, members, number, text, texts
from allot.core.validation.fields import Findings, child, duplicate, index, invalid, not_supported, required

_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = (*_NO_SIDE_EFFECTS, "Some", "Unknown")
_REVIEW_VERSIONS = ("v1", "v1beta1")


def _webhook_defaults(configuration: Object) -> None:
    for webhook in items(configuration, "webhooks"):
        fill_text(webhook, failurePolicy="Fail")
        fill(webhook, timeoutSeconds=10)
        selection_defaults(webhook)
        if configuration.get("kind") == "MutatingWebhookConfiguration":
            fill_text(webhook, reinvocationPolicy="Never")
        service = members(webhook, "clientConfig").get("service")
        if isinstance(service, dict):
            fill(service, port=443)


def _check_webhooks(configuration: Object) -> Findings:
    return _recheck_webhooks(configuration, {})


def _recheck_webhooks(configuration: Object, old: Object) -> Findings:
    """What stored webhooks were allowed once, changed ones still are."""
    before = items(old, "webhooks")
    old_names = [text(each, "name") for each in before]
    unique = len(set(old_names)) == len(old_names)
    harmless = all(text(each, "sideEffects") in _NO_SIDE_EFFECTS for each in before)
    known_versions = all(
        not texts(each, "admissionReviewVersions")
        or set(_REVIEW_VERSIONS) & set(texts(each, "admissionReviewVersions"))
        for each in before
    )
    same_conditions = [each.get("matchConditions") for each in before]
    found: Findings = []
    names = set()
    webhooks = items(configuration, "webhooks")
    compile_ = not old or [each.get("matchConditions") for each in webhooks] != same_conditions
    for position, webhook in enumerate(webhooks):
        where, name = index("webhooks", position), text(webhook, "name")
        found += _check_webhook(webhook, where, _NO_SIDE_EFFECTS if harmless else _SIDE_EFFECTS, compile_=compile_)
        versions = texts(webhook, "admissionReviewVersions")
        found += _check_versions(versions, child(where, "admissionReviewVersions"), recognized=bool(known_versions))
        if unique and name and name in names:
            found.append(duplicate(child(where, "name"), name))
        names.add(name)
    return found


def _check_webhook(webhook: Object, path: str, side_effects: tuple[str, ...], *, compile_: bool) -> Findings:
    found = _check_webhook_name(text(webhook, "name"), child(path, "name"))
    for position, rule in enumerate(items(webhook, "rules")):
        found += check_rule(rule, index(child(path, "rules"), position))
    found += one_of(webhook, "failurePolicy", ("Fail", "Ignore"), path)
    found += one_of(webhook, "matchPolicy", ("Equivalent", "Exact"), path)
    if not given(webhook, "sideEffects"):
        found.append(required(child(path, "sideEffects"), f"must specify one of {', '.join(sorted(side_effects))}"))
    elif text(webhook, "sideEffects") not in side_effects:
        found.append(not_supported(child(path, "sideEffects"), text(webhook, "sideEffects"), side_effects))
    seconds = number(webhook, "timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        found.append(invalid(child(path, "timeoutSeconds"), seconds, detail))
    for name in ("namespaceSelector", "objectSelector"):
        found += label_selector(members(webhook, name), child(path, name))
    found += one_of(webhook, "reinvocationPolicy", ("IfNeeded", "Never"), path)
    found += _check_client(members(webhook, "clientConfig"), child(path, "clientConfig"))
    if compile_:
        conditions = items(webhook, "matchConditions")
        found += check_conditions(conditions, Expressions(), child(path, "matchConditions"))
    return found


def _check_webhook_name(name: str, path: str) -> Findings:
    if not name:
        return [required(path)]
    messages = formats.dns_subdomain(name)
    if messages:
        return [invalid(path, name, ",".join(messages))]
    if name.count(".") < 2:
        return [invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def _check_versions(versions: list[str], path: str, *, recognized: bool) -> Findings:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")]
    found: Findings = []
    seen = set()
    for position, version in enumerate(versions):
        if version in seen:
            found.append(invalid(index(path, position), version, "duplicate version"))
            continue
        seen.add(version)
        found += told(index(path, position), version, formats.dns_label_1035(version))
    if recognized and not seen & set(_REVIEW_VERSIONS):
        found.append(invalid(path, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"))
    return found


def _check_client(client: Object, path: str) -> Findings:
    if given(client, "url") == given(client, "service"):
        return [required(path, "exactly one of url or service is required")]
    if given(client, "url"):
        return _check_url(text(client, "url"), child(path, "url"))
    service, where = members(client, "service"), child(path, "service")
    found = [required(child(where, name)) for name in ("name", "namespace") if not text(service, name)]
    port = number(service, "port") or 0
    if port_number(port):
        found.append(invalid(child(where, "port"), port, f"port is not valid: {', '.join(port_number(port))}"))
    return found + _check_service_path(text(service, "path"), child(where, "path"))


def _check_url(url: str, path: str) -> Findings:
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{form}")]
    found: Findings = []
    if parts.scheme != "https":
        found.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        found.append(invalid(path, host, f"host must be specified{form}"))
    if at:
        found.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        found.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        found.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return found


def _check_service_path(value: str, path: str) -> Findings:
    if value in ("", "/"):
        return []
    if value == "//":
        return [invalid(path, value, "segment[0] may not be empty")]
    found = [] if value.startswith("/") else [invalid(path, value, "must start with a '/'")]
    for position, step in enumerate(value[1:].removesuffix("/").split("/")):
        if not step:
            found.append(invalid(path, value, f"segment[{position}] may not be empty"))
        found += [invalid(path, value, f"segment[{position}]: {each}") for each in formats.dns_subdomain(step) if step]
    return found


WEBHOOKS = Rules(
    defaults=_webhook_defaults, generation_of=("webhooks",), check=_check_webhooks, recheck=_recheck_webhooks
)
