"""The answer to "why not?": which part of an expression decided, what it saw, and a phrase for it."""

from __future__ import annotations

from typing import Final

import msgspec

from allot.core.cel.data.text import go_text
from allot.core.cel.data.values import Optional, Value, decoded_key, is_list, is_map
from allot.core.quoting import quoted

_TEXT_MAX: Final = 200
_ELEMENTS_MAX: Final = 20
_DEPTH_MAX: Final = 3
_NEEDS: Final = {
    "==": "need {0}",
    "!=": "need something else",
    ">=": "need at least {0}",
    ">": "need more than {0}",
    "<=": "need at most {0}",
    "<": "need less than {0}",
    "in": "need one of {0}",
    "not in": "need none of {0}",
    "startsWith": "need it to start with {0}",
    "endsWith": "need it to end with {0}",
    "contains": "need it to contain {0}",
    "matches": "need it to match {0}",
    "includes": "need it to include {0}",
    "exists": "need an element for which {0}",
    "not startsWith": "need it not to start with {0}",
    "not endsWith": "need it not to end with {0}",
    "not contains": "need it not to contain {0}",
    "not matches": "need it not to match {0}",
    "not includes": "need it not to include {0}",
}
_KINDS: Final = {"attributes": "attribute", "capacity": "capacity"}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why an expression did not match a device.

    `expression` is the text of the part that decided, `values` what its operands evaluated to. For the common shapes subject
    (a short name), actual, operator and expected say the same in structured form; `path` is the subject's map and
    domain. `alternatives` are the reasons of a disjunction's operands, all of which failed.
    """

    outcome: str
    expression: str
    values: tuple[tuple[str, str], ...] = ()
    subject: str = ""
    actual: str = ""
    operator: str = ""
    expected: str = ""
    path: tuple[str, str] = ("", "")
    # The device lacks the subject; `actual` is used instead.
    absent: bool = False
    error: str = ""
    alternatives: tuple[Explanation, ...] = ()

    def sentence(self) -> str:
        """A short phrase, e.g. `memory is 40Gi, need at least 80Gi`."""
        if self.outcome == "match":
            return "matches"
        if self.alternatives:
            return "; ".join(dict.fromkeys(reason.sentence() for reason in self.alternatives))
        if self.operator == "has" and self.subject:
            return f"{self._place()} is not published"
        if self.operator == "not has":
            return f"{self._place()} is published, but must not be"
        if self.error:
            return self.error
        need = _NEEDS.get(self.operator)
        if need is None:
            return f"{_short(self.expression)} is not true"
        published = f"not published (counts as {self.actual})" if self.absent else self.actual
        return f"{self.subject} is {published}, {need.format(_short(self.expected))}"

    def _place(self) -> str:
        kind, domain = self.path
        if not domain:
            return _KINDS.get(kind, "field") + f" {self.subject}"
        return f"{_KINDS.get(kind, 'field')} {quoted(domain)}/{self.subject}"


def value_text(value: Value, depth: int = 0) -> str:
    """A value for display: texts in quotes, the rest as Kubernetes writes it."""
    if value.__class__ is str:
        return _short(quoted(value))
    if value is None:
        return "null"
    if depth > _DEPTH_MAX:
        return "…"
    if is_list(value):
        return _short("[" + ", ".join(value_text(element, depth + 1) for element in value[:_ELEMENTS_MAX]) + "]")
    if is_map(value):
        entries = list(value.items())[:_ELEMENTS_MAX]
        shown = [f"{value_text(decoded_key(key))}: {value_text(item, depth + 1)}" for key, item in entries]
        return _short("{" + ", ".join(shown) + "}")
    if value.__class__ is Optional:
        return value_text(value.value, depth + 1) if value.present else "absent"
    return _short(go_text(value))


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"
