"""Name formats of the Kubernetes API and the texts that explain a violation.

Each function takes a value and returns what is wrong with it, nothing if it is valid. Upstream has two sets of texts
for the length of a name, "characters" in handwritten and "bytes" in declarative validation (both count bytes); `unit`
selects one. Does not know fields or kinds.
"""

from __future__ import annotations

import re

from allot.core.quoting import quoted as quote
from allot.core.validation.addresses import parse_network, unmapped
from allot.core.validation.fields import byte_length

Messages = list[str]

CHARACTERS = "characters"
BYTES = "bytes"

LABEL_LENGTH_MAX = 63
SUBDOMAIN_LENGTH_MAX = 253
DRIVER_NAME_LENGTH_MAX = 63
POOL_NAME_LENGTH_MAX = 253
IDENTIFIER_LENGTH_MAX = 32
LABEL_VALUE_LENGTH_MAX = 63

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_LABEL_KEY_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_LABEL_KEY_NAME})?"
_CONDITION_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NUMBER = "(0|[1-9][0-9]*)"
_PRE_RELEASE = "(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"  # semver.org 2.0.0

_label = re.compile(_LABEL).fullmatch
_label_1035 = re.compile(_LABEL_1035).fullmatch
_subdomain = re.compile(_SUBDOMAIN).fullmatch
_subdomain_caseless = re.compile(_SUBDOMAIN, re.IGNORECASE | re.ASCII).fullmatch
_identifier = re.compile(_IDENTIFIER).fullmatch
_label_key_name = re.compile(_LABEL_KEY_NAME).fullmatch
_label_value = re.compile(_LABEL_VALUE).fullmatch
_condition_reason = re.compile(_CONDITION_REASON).fullmatch
_uuid = re.compile(_UUID).fullmatch
_semver = re.compile(_SEMVER).fullmatch

_ALPHANUMERIC_ENDS = "and must start and end with an alphanumeric character"
_LABEL_TEXT = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ALPHANUMERIC_ENDS}"
)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character"
)
_SUBDOMAIN_TEXT = f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ALPHANUMERIC_ENDS}"
_CASELESS_TEXT = f"an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', {_ALPHANUMERIC_ENDS}"
_LABEL_KEY_TEXT = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC_ENDS}"
_LABEL_VALUE_TEXT = f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC_ENDS}"
_IDENTIFIER_TEXT = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'"
_REASON_TEXT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)

UUID_TEXT = "must be a lowercase UUID in 8-4-4-4-12 format"
SEMVER_TEXT = "must be a string compatible with semver.org spec 2.0.0"


def _pattern_text(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _length_text(maximum: int, unit: str) -> str:
    return f"must be no more than {maximum} {unit}"


def dns_label(value: str, unit: str = CHARACTERS) -> Messages:
    """A DNS label: one part of a host name."""
    messages = [_length_text(LABEL_LENGTH_MAX, unit)] if byte_length(value) > LABEL_LENGTH_MAX else []
    if not _label(value):
        dotted = "must not contain dots"
        messages.append(dotted if _subdomain(value) else _pattern_text(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return messages


def dns_label_1035(value: str) -> Messages:
    """A DNS label that begins with a letter."""
    messages = [_length_text(LABEL_LENGTH_MAX, CHARACTERS)] if byte_length(value) > LABEL_LENGTH_MAX else []
    if not _label_1035(value):
        messages.append(_pattern_text(_LABEL_1035_TEXT, _LABEL_1035, "my-name", "abc-123"))
    return messages


def dns_subdomain(value: str, unit: str = CHARACTERS) -> Messages:
    """A DNS subdomain: labels joined by dots."""
    messages = [_length_text(SUBDOMAIN_LENGTH_MAX, unit)] if byte_length(value) > SUBDOMAIN_LENGTH_MAX else []
    if not _subdomain(value):
        messages.append(_pattern_text(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return messages


def dns_subdomain_caseless(value: str) -> Messages:
    """A DNS subdomain in upper or lower case."""
    messages = [_length_text(SUBDOMAIN_LENGTH_MAX, BYTES)] if byte_length(value) > SUBDOMAIN_LENGTH_MAX else []
    if not _subdomain_caseless(value):
        messages.append(_pattern_text(_CASELESS_TEXT, _SUBDOMAIN, "Example.com"))
    return messages


def c_identifier(value: str) -> Messages:
    """A C identifier, of any length."""
    return [] if _identifier(value) else [_pattern_text(_IDENTIFIER_TEXT, _IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def label_key(value: str) -> Messages:
    """A label key: a name with an optional DNS subdomain before a slash."""
    examples = ("MyName", "my.name", "123-abc")
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        text = _pattern_text(_LABEL_KEY_TEXT, _LABEL_KEY_NAME, *examples)
        return [f"a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    messages = []
    if slash and not prefix:
        messages.append("prefix part must be non-empty")
    elif slash:
        messages += [f"prefix part {message}" for message in dns_subdomain(prefix, BYTES)]
    if not name:
        messages.append("name part must be non-empty")
    elif byte_length(name) > LABEL_LENGTH_MAX:
        messages.append(f"name part {_length_text(LABEL_LENGTH_MAX, BYTES)}")
    if not _label_key_name(name):
        messages.append(f"name part {_pattern_text(_LABEL_KEY_TEXT, _LABEL_KEY_NAME, *examples)}")
    return messages


def label_value(value: str) -> Messages:
    """A label value; may be empty."""
    messages = [_length_text(LABEL_VALUE_LENGTH_MAX, BYTES)] if byte_length(value) > LABEL_VALUE_LENGTH_MAX else []
    if not _label_value(value):
        messages.append(_pattern_text(_LABEL_VALUE_TEXT, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return messages


def path_segment(value: str) -> Messages:
    """A name that can be one segment of a URL path."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in value]


def condition_reason(value: str) -> Messages:
    """The reason of a condition."""
    if _condition_reason(value):
        return []
    examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
    return [_pattern_text(_REASON_TEXT, _CONDITION_REASON, *examples)]


def lower_case_uuid(value: str) -> Messages:
    """A UUID in its usual form; version bits are not checked."""
    return [] if _uuid(value) else [UUID_TEXT]


def semver(value: str) -> Messages:
    """A semver.org 2.0.0 version, without a leading v."""
    return [] if _semver(value) else [SEMVER_TEXT]


def interface_address(value: str) -> Messages:
    """An address with its network's prefix length, in canonical form."""
    canonical = _canonical_address(value)
    if canonical is None:
        return ["must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"]
    return [] if canonical == value else [f"must be in canonical form ({quote(canonical)})"]


def _canonical_address(value: str) -> str | None:
    """The canonical form, or None."""
    network = parse_network(value)
    if network is None:
        return None
    # Go prints a mapped address as IPv4; its prefix is that of the IPv4 part if it extends into it.
    prefix = network.prefix - 96 if network.is_mapped and network.prefix > 32 else network.prefix
    return f"{unmapped(network.address)}/{prefix}"
