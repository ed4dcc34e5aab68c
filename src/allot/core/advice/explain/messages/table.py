"""Looks a message up: the first saying that matches gives its meaning and remedies, with names and values from the cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from allot.core.advice.explain.messages.facts import Facts
from allot.core.advice.explain.wording import one_line

_SHOWN_MAX = 200


class Saying(NamedTuple):
    """A message that is known. pattern: a regular expression, whatever the case of the letters; kept as text, because few are ever needed.

    means, remedies: texts with names in braces, which are groups of the pattern or facts about the pod (`facts.py`). A text whose names
    are not all known is left out; of what it means, the first that is left counts.
    """

    pattern: str
    means: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


class Meaning(NamedTuple):
    """What a message means. shown: the part of it to quote; text: phrased to follow a colon, empty if the message says it all."""

    shown: str
    text: str
    advice: tuple[str, ...]


def meaning_of(table: Sequence[Saying], message: str, facts: Facts) -> Meaning | None:
    """What a message means; None if it is unknown."""
    said = one_line(message)
    for saying in table:
        found = re.search(saying.pattern, said, re.IGNORECASE)
        if found is None:
            continue
        known = facts.of(found)
        texts = [text for each in saying.means if (text := known.fill(each))]
        advice = [text for each in saying.remedies if (text := known.fill(each))]
        if not texts and not advice:
            continue
        return Meaning(excerpt(said, found.start()), texts[0] if texts else "", tuple(advice))
    return None


def excerpt(said: str, start: int) -> str:
    """A long message from where it matters; the last part of a traceback is what matters."""
    if len(said) <= _SHOWN_MAX:
        return said
    begin = 0 if start < _SHOWN_MAX // 2 else said.rfind(" ", 0, max(0, start - 20)) + 1
    return said[begin : begin + _SHOWN_MAX]


def shortened(message: str) -> str:
    """A message that is not known: its end, if it is a traceback, and otherwise its beginning."""
    said = one_line(message)
    if len(said) > _SHOWN_MAX and "Traceback (most recent call last)" in said:
        return said[said.rfind(" ", 0, len(said) - _SHOWN_MAX) + 1 :]
    return said[:_SHOWN_MAX]
