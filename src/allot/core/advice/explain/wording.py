"""Phrases that all explanations share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SHOWN_MAX = 3
_UNITS = (("d", 86400), ("h", 3600), ("m", 60))


def listed(names: Iterable[str], shown_max: int = _SHOWN_MAX) -> str:
    """`a, b and 3 more`."""
    known = list(dict.fromkeys(names))
    if len(known) <= shown_max:
        return joined(known)
    return f"{', '.join(known[: shown_max - 1])} and {len(known) - shown_max + 1} more"


def joined(texts: Sequence[str]) -> str:
    """`a, b and c`."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""


def count(number: int, word: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{number} {word}" if number == 1 else f"{number} {plural(word)}"


def plural(word: str) -> str:
    """`devices`, `classes`, `copies`."""
    if word.endswith("y"):
        return f"{word.removesuffix('y')}ies"
    return f"{word}es" if word.endswith("ss") else f"{word}s"


def named(word: str, names: Iterable[str]) -> str:
    """`node a`, `nodes a and b`."""
    known = list(dict.fromkeys(names))
    return f"{word if len(known) == 1 else plural(word)} {listed(known)}"


_VERBS = {"is": "are", "was": "were", "has": "have", "does": "do", "publishes": "publish"} | {
    verb: verb.removesuffix("s") for verb in ("asks", "belongs", "lacks", "names", "needs", "runs", "uses", "waits")
}
_WHY = re.compile(r"\bbecause (?:its\b|it (?P<verb>[a-z]+))")


def of_several(text: str) -> str:
    """A sentence about one thing, in the plural: `has taint x` becomes `have taint x`, and `is pending because it asks for x` becomes
    `are pending because they ask for x`."""
    verb, space, rest = text.partition(" ")
    return f"{_VERBS.get(verb, verb)}{space}{_WHY.sub(_why_of_several, rest)}"


def _why_of_several(found: re.Match[str]) -> str:
    verb = found["verb"]
    return "because their" if verb is None else f"because they {_VERBS.get(verb, verb)}"


def duration(seconds: int) -> str:
    """`3h12m`, as kubectl writes ages."""
    parts = []
    for unit, size in _UNITS:
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return "".join(parts[:2]) or f"{seconds}s"


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split())


def same_letters(one: str, other: str) -> int:
    """With how many equal letters two names begin."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
