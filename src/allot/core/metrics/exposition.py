"""Prometheus' text format: parses untrusted text into samples, and writes samples.

Input is bounded: the number of samples, and the length of names and values. An invalid line is skipped and counted; one broken
line does not discard the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import msgspec

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(,|(?=}))', re.ASCII)
_END = re.compile(r"[ \t]*}")
# Python would accept more: digits of other alphabets, underscores between them.
_VALUE = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE
)
_TIME = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_ESCAPED = re.compile(r'\\(["\\n])')
_LINE_MAX = 8192
_NAME_MAX = 200
_LABELS_MAX = 64
# As far in the future as Prometheus accepts samples.
_AHEAD_S = 600.0


class Sample(msgspec.Struct, frozen=True):
    """One value. at_ms: when it was measured, if given."""

    name: str
    labels: Mapping[str, str]
    value: float
    at_ms: int | None = None


def measured_at(sample: Sample, now: float) -> float | None:
    """When a sample was measured, in seconds since 1970; None if the time is impossible. Clocks differ a little, and a sample
    from the future would never expire.
    """
    if sample.at_ms is None:
        return now
    at = sample.at_ms / 1000
    return min(at, now) if 0 <= at <= now + _AHEAD_S else None


class Exposition(msgspec.Struct, frozen=True):
    """The contents of a text. types: counter, gauge, histogram, summary or untyped, by name. left_out: invalid lines, and samples
    beyond the limit.
    """

    samples: tuple[Sample, ...]
    types: Mapping[str, str] = {}
    left_out: int = 0


def parse(text: str, *, samples_max: int) -> Exposition:
    """The samples of a text."""
    samples: list[Sample] = []
    types: dict[str, str] = {}
    left_out = 0
    # Not splitlines: labels may contain characters that Unicode treats as line breaks.
    for raw in text.split("\n"):
        line = raw.strip(" \t\r")
        if not line:
            continue
        if line.startswith("#"):
            words = line.split(maxsplit=3)
            if len(words) == 4 and words[1] == "TYPE" and len(types) < samples_max:
                types[words[2][:_NAME_MAX]] = words[3][:_NAME_MAX]
            continue
        sample = _sample(line) if len(samples) < samples_max and len(line) <= _LINE_MAX else None
        if sample is None:
            left_out += 1
        else:
            samples.append(sample)
    return Exposition(tuple(samples), types, left_out)


def _sample(line: str) -> Sample | None:
    found = _NAME.match(line)
    if found is None or found.end() > _NAME_MAX:
        return None
    labels: Mapping[str, str] = {}
    position = found.end()
    if line.startswith("{", position):
        read = _labels(line, position + 1)
        if read is None:
            return None
        labels, position = read
    # An exemplar follows a #.
    words = line[position:].partition("#")[0].split()
    if not 1 <= len(words) <= 2 or not _VALUE.fullmatch(words[0]):
        return None
    if len(words) == 2 and not _TIME.fullmatch(words[1]):
        return None
    return Sample(found.group(), labels, float(words[0]), int(words[1]) if len(words) == 2 else None)


def _labels(line: str, position: int) -> tuple[Mapping[str, str], int] | None:
    """The labels from a position, and where the rest starts."""
    labels: dict[str, str] = {}
    while True:
        end = _END.match(line, position)
        if end is not None:
            return labels, end.end()
        found = _LABEL.match(line, position)
        if found is None or len(labels) == _LABELS_MAX:
            return None
        value = found.group(2)
        labels[found.group(1)] = _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        position = found.end()


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found.group(1) == "n" else found.group(1)


def line(name: str, labels: Mapping[str, str], value: float, at_ms: int | None = None) -> str:
    """One sample as text."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    at = f" {at_ms}" if at_ms is not None else ""
    return f"{name}{{{inside}}} {number}{at}" if inside else f"{name} {number}{at}"


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def text_of(samples: Iterable[Sample], types: Mapping[str, str] = {}) -> str:
    """Samples as text, grouped by name."""
    by_name: dict[str, list[str]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(line(sample.name, sample.labels, sample.value, sample.at_ms))
    told: list[str] = []
    for name, lines in by_name.items():
        if name in types:
            told.append(f"# TYPE {name} {types[name]}")
        told += lines
    return "\n".join([*told, ""]) if told else ""
