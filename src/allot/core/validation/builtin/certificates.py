"""Certificate signing requests, trust bundles, and pods' certificate requests.

PEM is read here, in one pass over the text; DER is read by `cryptography`, which is as pure as the rest of the core. A request
must be signed with its own key; otherwise anyone could request a certificate for someone else's key.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable, Iterator

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from allot.core.quoting import quoted as quote
from allot.core.validation import formats
from allot.core.validation.builtin.checks import immutable, one_of, told
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import Object, copied, items, members, number, same, text, texts
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from allot.core.validation.formats import Messages

TRUST_BUNDLE_SIZE_MAX = 1024 * 1024
# A bundle can hold tens of thousands of invalid blocks; reporting all of them helps no one.
_BAD_ENTRIES_MAX = 100
_EXPIRATION_SECONDS_MIN = 600
_SIGNER_NAME_LENGTH_MAX = 571
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_OMITTED = "<value omitted>"
_KEYS = (rsa.RSAPublicKey, ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey)
# Verification time grows with the square of the key size.
_RSA_BITS_MAX = 16384

_USAGES = frozenset(
    (
        "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
        "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
        "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
        "server auth", "signing", "timestamping",
    )
)  # fmt: skip


# --- names ---


def check_signer_name(name: str, path: str) -> Findings:
    """The name of a signer: a domain and a path, such as example.com/signer."""
    if not name:
        return [required(path)]
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(path, name, detail)]
    found: Findings = []
    if byte_length(domain) > formats.SUBDOMAIN_LENGTH_MAX:
        found.append(too_long(path, formats.SUBDOMAIN_LENGTH_MAX))
    found += _check_labels(domain, path, formats.dns_label)
    if "." not in domain:
        found.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    found += _check_labels(rest, path, formats.dns_subdomain)
    if byte_length(name) > _SIGNER_NAME_LENGTH_MAX:
        found.append(too_long(path, _SIGNER_NAME_LENGTH_MAX))
    return found


def _check_labels(part: str, path: str, format_: Callable[[str], Messages]) -> Findings:
    """The first invalid label in a part of a signer's name."""
    for label in part.split("."):
        messages = format_(label)
        if messages:
            return [invalid(path, part, f"validating label {quote(label)}: {message}") for message in messages]
    return []


# --- PEM ---


class Block(msgspec.Struct, frozen=True):
    """A PEM block."""

    type: str
    has_headers: bool
    der: bytes


_BEGIN = "-----BEGIN "
_END = "-----END "
_DASHES = "-----"
_SPACE = " \t\r\n"


def pem_blocks(text_: str) -> Iterator[Block]:
    """The PEM blocks of a text, which may contain anything between them; malformed blocks are skipped."""
    type_: str | None = None
    body: list[str] = []
    for each in text_.split("\n"):
        line = each.strip(_SPACE)
        if line.startswith(_BEGIN) and line.endswith(_DASHES):
            # A block cannot contain the start of another: the previous one is unterminated.
            type_, body = line[len(_BEGIN) : -len(_DASHES)], []
        elif type_ is not None and line.startswith(_END):
            block = _block(type_, body) if line == f"{_END}{type_}{_DASHES}" else None
            type_ = None
            if block is not None:
                yield block
        elif type_ is not None:
            body.append(line)


def _block(type_: str, lines: list[str]) -> Block | None:
    headers = 0
    while headers < len(lines) and ":" in lines[headers]:
        headers += 1
    try:
        return Block(type_, headers > 0, b64decode("".join(lines[headers:]), validate=True))
    except (binascii.Error, ValueError):
        return None


def _decoded(value: str) -> str:
    """The text in a bytes field; non-text bytes cannot be PEM, but may surround it."""
    try:
        return b64decode(value).decode("latin-1")
    except (binascii.Error, ValueError):
        return ""


# --- signing requests ---


def signing_request_problem(pem: str) -> str:
    """What is wrong with a PEM-encoded PKCS#10 request; nothing if it is signed with its own key."""
    block = next(pem_blocks(pem), None)
    if block is None or block.type != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_der_x509_csr(block.der)
        key = request.public_key()
        if not isinstance(key, _KEYS):
            return "x509: cannot verify signature: algorithm unimplemented"
        if isinstance(key, rsa.RSAPublicKey) and key.key_size > _RSA_BITS_MAX:
            return f"x509: RSA keys may have {_RSA_BITS_MAX} bits at most"
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        return f"x509: malformed certificate request: {error}"
    return "" if is_signed else "x509: signature of the certificate request does not fit its key"


def certificate_problem(pem: str) -> str:
    """What is wrong with a PEM-encoded certificate chain."""
    blocks = 0
    for block in pem_blocks(pem):
        if block.type != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {quote(block.type)}"
        if block.has_headers:
            return "no PEM block headers are permitted"
        blocks += 1
        try:
            x509.load_der_x509_certificate(block.der)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            return f"x509: malformed certificate: {error}"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


_DECISIONS = ("Approved", "Denied")
_ALWAYS_TRUE = (*_DECISIONS, "Failed")
_STATUSES = ("False", "True", "Unknown")


def _check_signing_request(request: Object) -> Findings:
    return _check_request_spec(request, {}) + _check_request_status(request, {})


def _check_request_spec(request: Object, old: Object) -> Findings:
    spec, before = members(request, "spec"), members(old, "spec")
    found: Findings = []
    problem = signing_request_problem(_decoded(text(spec, "request")))
    if problem:
        found.append(invalid("spec.request", text(spec, "request"), problem))
    usages, known = texts(spec, "usages"), texts(before, "usages")
    if not usages:
        found.append(required("spec.usages"))
    if _USAGES.issuperset(known):
        for position, usage in enumerate(usages):
            if usage not in _USAGES:
                found.append(not_supported(index("spec.usages", position), usage, _USAGES))
    if len(set(known)) == len(known):
        seen = set()
        for position, usage in enumerate(usages):
            if usage in seen:
                found.append(duplicate(index("spec.usages", position), usage))
            seen.add(usage)
    signer = text(spec, "signerName")
    if signer == _LEGACY_SIGNER != text(before, "signerName"):
        found.append(invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version"))
    else:
        found += check_signer_name(signer, "spec.signerName")
    seconds = number(spec, "expirationSeconds")
    if seconds is not None and seconds < _EXPIRATION_SECONDS_MIN:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        found.append(invalid("spec.expirationSeconds", seconds, detail))
    return found


def _check_request_status(request: Object, old: Object) -> Findings:
    found = _check_conditions(items(request, "status", "conditions"), items(old, "status", "conditions"))
    certificate, before = text(request, "status", "certificate"), text(old, "status", "certificate")
    if certificate and certificate != before:
        problem = certificate_problem(_decoded(certificate))
        if problem:
            found.append(invalid("status.certificate", "<certificate data>", problem))
    return found


def _check_conditions(conditions: list[Object], before: list[Object]) -> Findings:
    found: Findings = []
    path = "status.conditions"
    known = [text(condition, "type") for condition in before]
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        where, type_ = index(path, position), text(condition, "type")
        if not type_ and "" not in known:
            found.append(required(child(where, "type")))
        statuses = ("True",) if type_ in _ALWAYS_TRUE else _STATUSES
        found += one_of(condition, "status", statuses, where, needed=True)
        if type_ in seen and len(set(known)) == len(known):
            found.append(duplicate(child(where, "type"), type_))
        seen.add(type_)
    if seen.issuperset(_DECISIONS) and not set(_DECISIONS).issubset(known):
        places = [f'conditions[{{"type": "{type_}"}}]' for type_ in _DECISIONS]
        detail = f"must specify at most one of: {', '.join(f'`{place}`' for place in places)}"
        found.append(invalid(path, f"{{{', '.join(places)}}}", detail))
    return found


def _check_request_update(new: Object, old: Object, subresource: str) -> Findings:
    found = _check_request_spec(new, old) + _check_request_status(new, old)
    for type_ in _ALWAYS_TRUE:
        after, before = _conditions_of(new, type_), _conditions_of(old, type_)
        if len(after) < len(before):
            found.append(forbidden("status.conditions", f'updates may not remove a condition of type "{type_}"'))
    for type_ in _DECISIONS if subresource != "approval" else ():
        after, before = _conditions_of(new, type_), _conditions_of(old, type_)
        if len(after) > len(before):
            found.append(forbidden("status.conditions", f'updates may not add a condition of type "{type_}"'))
        elif len(after) == len(before) and not same(after, before):
            found.append(forbidden("status.conditions", f'updates may not modify a condition of type "{type_}"'))
    certificate, known = text(new, "status", "certificate"), text(old, "status", "certificate")
    if certificate != known:
        if subresource != "status":
            found.append(forbidden("status.certificate", "updates may not set certificate content"))
        elif known:
            found.append(forbidden("status.certificate", "updates may not modify existing certificate content"))
    return found


def _conditions_of(request: Object, type_: str) -> list[Object]:
    return [condition for condition in items(request, "status", "conditions") if text(condition, "type") == type_]


def with_times(request: Object, old: Object, now: str) -> Object:
    """The request with the times of its conditions filled in where the client omits them."""
    before = items(old, "status", "conditions")
    since = {(text(each, "type"), text(each, "status")): text(each, "lastTransitionTime") for each in reversed(before)}
    status = members(request, "status")
    conditions = [
        {
            **condition,
            "lastUpdateTime": text(condition, "lastUpdateTime") or now,
            "lastTransitionTime": text(condition, "lastTransitionTime")
            or since.get((text(condition, "type"), text(condition, "status")))
            or now,
        }
        for condition in items(status, "conditions")
    ]
    return {**request, "status": {**status, "conditions": conditions}} if conditions else request


def _changed_request(new: Object, old: Object, subresource: str) -> None:
    """The request is immutable; the approver writes only the approval, and the signer only the certificate."""
    new["spec"] = copied(members(old, "spec"))
    before = copied(members(old, "status"))
    if subresource == "approval":
        new["status"] = before | {"conditions": copied(members(new, "status").get("conditions") or [])}
    elif subresource == "status":
        status = copied(members(new, "status"))
        for type_ in _DECISIONS:
            _keep_conditions(status, before, type_)
        new["status"] = status


def _keep_conditions(status: Object, before: Object, type_: str) -> None:
    """Keeps conditions as stored, unless their number changed, which is refused later."""
    kept = [condition for condition in items(before, "conditions") if text(condition, "type") == type_]
    conditions = status.get("conditions")
    places = [
        position
        for position, condition in enumerate(conditions if isinstance(conditions, list) else [])
        if isinstance(condition, dict) and condition.get("type") == type_
    ]
    if len(places) == len(kept) and isinstance(conditions, list):
        for position, condition in zip(places, kept, strict=True):
            conditions[position] = condition


SIGNING_REQUEST = Rules(
    name_format=formats.path_segment,
    initial_status=lambda _: {},
    prepare_update=_changed_request,
    check=_check_signing_request,
    recheck=lambda _new, _old: [],
    check_update=_check_request_update,
)


# --- trust bundles ---


def _bundle_name_format(bundle: Object) -> Callable[[str], Messages]:
    """The name of a signer's bundle starts with the signer's name."""
    signer = text(bundle, "spec", "signerName")
    return lambda name: bundle_name_problems(name, signer)


def bundle_name_problems(name: str, signer: str) -> Messages:
    """What is wrong with the name of a bundle; the signer may be empty."""
    prefix = signer.replace("/", ":") + ":"
    if not signer:
        if ":" in name:
            return ['ClusterTrustBundle without signer name must not have ":" in its name']
        return formats.dns_subdomain(name)
    if not name.startswith(prefix):
        return [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    return formats.dns_subdomain(name.removeprefix(prefix))


def check_trust_bundle(pem: str, path: str) -> Findings:
    """Unique CA certificates, and nothing else."""
    if byte_length(pem) > TRUST_BUNDLE_SIZE_MAX:
        return [too_long(path, TRUST_BUNDLE_SIZE_MAX)]
    found: Findings = []
    places: dict[bytes, list[int]] = {}
    for position, block in enumerate(pem_blocks(pem)):
        problem = _anchor_problem(block)
        if problem:
            found.append(invalid(path, _OMITTED, f"entry {position} {problem}"))
            if len(found) == _BAD_ENTRIES_MAX:
                break
        else:
            places.setdefault(block.der, []).append(position)
    if found:
        return found
    if not places:
        found.append(invalid(path, _OMITTED, "at least one trust anchor must be provided"))
    for entries in places.values():
        if len(entries) > 1:
            shown = " ".join(str(entry) for entry in entries)
            found.append(invalid(path, _OMITTED, f"duplicate trust anchor (indices [{shown}])"))
    return found


def _anchor_problem(block: Block) -> str:
    if block.type != "CERTIFICATE":
        return f"has bad block type: {block.type}"
    if block.has_headers:
        return "has PEM block headers"
    try:
        certificate = x509.load_der_x509_certificate(block.der)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return "does not parse as X.509"
    return "" if constraints.ca else "does not have the CA bit set"


def _check_bundle(bundle: Object) -> Findings:
    return _recheck_bundle(bundle, {})


def _recheck_bundle(bundle: Object, old: Object) -> Findings:
    signer, pem = text(bundle, "spec", "signerName"), text(bundle, "spec", "trustBundle")
    found = check_signer_name(signer, "spec.signerName") if signer else []
    if old and pem == text(old, "spec", "trustBundle"):
        return found
    return found + check_trust_bundle(pem, "spec.trustBundle")


def _check_bundle_update(new: Object, old: Object, _subresource: str) -> Findings:
    name = text(new, "metadata", "name")
    found = told("metadata.name", name, _bundle_name_format(new)(name))
    return found + immutable(text(new, "spec", "signerName"), text(old, "spec", "signerName"), "spec.signerName")


TRUST_BUNDLE = Rules(
    name_format_of=_bundle_name_format,
    check=_check_bundle,
    recheck=_recheck_bundle,
    check_update=_check_bundle_update,
)
