"""The known name that is most similar to a misspelt one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LIKENESS_MIN = 0.6
# Words in another order have to be nearly the same ones.
_WORDS_LIKENESS_MIN = 0.8
_WORD = re.compile(r"[^\W_]+")
_NAMES_MAX = 2000
_SHOWN_MAX = 5


def nearest(name: str, names: Iterable[str], *, likeness_min: float = _LIKENESS_MIN) -> str | None:
    """The most similar of the names, if any is similar: by its letters, or by its words in any order (`fast-nvme` and
    `nvme-fast`)."""
    known = sorted(set(names))[:_NAMES_MAX]
    by_lower = {each.lower(): each for each in reversed(known)}
    found = difflib.get_close_matches(name.lower(), by_lower, 1, likeness_min)
    by_words = {_in_order(each): each for each in reversed(known)}
    words = difflib.get_close_matches(_in_order(name), by_words, 1, max(likeness_min, _WORDS_LIKENESS_MIN))
    if words and (not found or _likeness(_in_order(name), words[0]) > _likeness(name.lower(), found[0])):
        return by_words[words[0]]
    return by_lower[found[0]] if found else None


def _in_order(name: str) -> str:
    """A name's words by the alphabet: `nvme-fast` becomes `fast nvme`."""
    return " ".join(sorted(_WORD.findall(name.lower())))


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, one).ratio()


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`did you mean "x"?`, or the existing names if none is similar; empty if there are none."""
    known = sorted(set(names))
    found = nearest(name, known)
    if found is not None:
        return f'did you mean "{found}"?'
    return f"there is {listed(known)}" if known else ""


def listed(names: Iterable[str]) -> str:
    """A few names, for messages."""
    known = sorted(set(names))
    more = f" and {len(known) - _SHOWN_MAX} more" if len(known) > _SHOWN_MAX else ""
    return ", ".join(known[:_SHOWN_MAX]) + more
