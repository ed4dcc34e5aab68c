"""Kubernetes' named string formats (format.dns1123Label() and so on) and the messages for texts that break them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from allot.core.cel.data.values import NONE, NamedFormat, Optional, Value
from allot.core.cel.library.url import UrlError, parse_absolute
from allot.core.quoting import quoted

_LABEL_LENGTH_MAX: Final = 63
_SUBDOMAIN_LENGTH_MAX: Final = 253

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + "(\\." + _LABEL + ")*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_LABEL_KEY})?"
_UUID: Final = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_TIME_OF_DAY: Final = "^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"
_BASE64: Final = "^(?:[A-Za-z0-9+\\/]{4})*(?:[A-Za-z0-9+\\/]{2}==|[A-Za-z0-9+\\/]{3}=|[A-Za-z0-9+\\/]{4})$"
# Beyond this no format matches anyway; it keeps backtracking in Python's matcher short.
_PATTERN_TEXT_MAX: Final = 4096

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character"
)
_LABEL_KEY_TEXT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character"
)

Check = Callable[[str], list[str]]


def _matches(pattern: str, text: str) -> bool:
    return len(text) <= _PATTERN_TEXT_MAX and re.fullmatch(pattern, text, re.ASCII) is not None


def _explained(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, length_max: int) -> list[str]:
    size = len(text.encode(errors="replace"))
    return [f"must be no more than {length_max} bytes"] if size > length_max else []


def _label(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_LENGTH_MAX)
    if not _matches(_LABEL, text):
        if _matches(_SUBDOMAIN, text):
            problems.append("must not contain dots")
        else:
            problems.append(_explained(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return problems


def _subdomain(text: str) -> list[str]:
    problems = _too_long(text, _SUBDOMAIN_LENGTH_MAX)
    if not _matches(_SUBDOMAIN, text):
        problems.append(_explained(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return problems


def _label_1035(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_LENGTH_MAX)
    if not _matches(_LABEL_1035, text):
        problems.append(_explained(_LABEL_1035_TEXT, _LABEL_1035, "my-name", "abc-123"))
    return problems


def _as_prefix(check: Check) -> Check:
    """The check for a name that something will be appended to: a final dash is allowed."""

    def checked(text: str) -> list[str]:
        # Upstream drops the character before the dash as well.
        return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return checked


def _qualified_name(text: str) -> list[str]:
    parts = text.split("/")
    explained = _explained(_LABEL_KEY_TEXT, _LABEL_KEY, "MyName", "my.name", "123-abc")
    if len(parts) > 2:
        return [
            f"a valid label key {explained} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if len(parts) == 2:
        broken = _subdomain(parts[0]) if parts[0] else ["must be non-empty"]
        problems += [f"prefix part {problem}" for problem in broken]
    name = parts[-1]
    length = _too_long(name, _LABEL_LENGTH_MAX) if name else ["must be non-empty"]
    problems += [f"name part {problem}" for problem in length]
    if not _matches(_LABEL_KEY, name):
        problems.append(f"name part {explained}")
    return problems


def _label_value(text: str) -> list[str]:
    problems = _too_long(text, _LABEL_LENGTH_MAX)
    if not _matches(_LABEL_VALUE, text):
        problems.append(_explained(_LABEL_VALUE_TEXT, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def _uri(text: str) -> list[str]:
    try:
        parse_absolute(text)
    except UrlError as error:
        return [f"parse {quoted(text)}: {error}"]
    return []


def _is_date(text: str) -> bool:
    if not _matches("[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        # The year 0 exists for Go; 4 has the same calendar.
        date(int(text[:4]) or 4, int(text[5:7]), int(text[8:]))
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]) or len(parts[1]) > _PATTERN_TEXT_MAX:
        return False
    time_of_day = re.match(_TIME_OF_DAY, parts[1], re.ASCII)
    return time_of_day is not None and time_of_day[1] <= "23" and time_of_day[2] <= "59" and time_of_day[3] <= "59"


def _test(passes: Callable[[str], bool], problem: str) -> Check:
    return lambda text: [] if passes(text) else [problem]


# Name -> the format's own name, the regex size that prices it, and the check.
_FORMATS: Final[dict[str, tuple[str, int, Check]]] = {
    "dns1123Label": ("DNS1123Label", 30, _label),
    "dns1123Subdomain": ("DNS1123Subdomain", 60, _subdomain),
    "dns1035Label": ("DNS1035Label", 30, _label_1035),
    "qualifiedName": ("QualifiedName", 60, _qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", 30, _as_prefix(_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", 60, _as_prefix(_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", 30, _as_prefix(_label_1035)),
    "labelValue": ("LabelValue", 40, _label_value),
    "uri": ("URI", 1103, _uri),
    "uuid": (
        "uuid",
        len(_UUID),
        _test(lambda text: _matches(_UUID[5:-1], text.lower()), "does not match the UUID format"),
    ),
    "byte": ("byte", 84, _test(lambda text: len(text) <= 2**20 and bool(re.match(_BASE64, text)), "invalid base64")),
    "date": ("date", len(_TIME_OF_DAY), _test(_is_date, "invalid date")),
    "datetime": ("datetime", len(_TIME_OF_DAY), _test(_is_date_time, "invalid datetime")),
}

_NAMED: Final = {key: NamedFormat(name, key, regex_size) for key, (name, regex_size, _) in _FORMATS.items()}


def named(name: str) -> Optional:
    """format.named()"""
    found = _NAMED.get(name)
    return NONE if found is None else Optional(found)


def validate(named_format: NamedFormat, text: str) -> Optional:
    """The list of what is wrong with a text; absent if it is valid."""
    problems = _FORMATS[named_format.key][2](text)
    return Optional(problems) if problems else NONE


def _constant(named_format: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named_format


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "format-named": named,
    "format-validate": validate,
    **{f"format.{key}": _constant(named_format) for key, named_format in _NAMED.items()},
}
