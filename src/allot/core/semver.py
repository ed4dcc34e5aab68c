"""Semantic versions (semver.org 2.0.0) with the rules and messages of Kubernetes' CEL functions.

Knows: parsing, strict or normalizing, and precedence. Does not know where versions are used; the API's own check of
version attributes is stricter in length and lives with validation.

Order, equality and hash ignore build metadata: 1.0.0+a equals 1.0.0+b. Numbers are unsigned 64-bit.
"""

from __future__ import annotations

import re
from typing import NoReturn

from allot.core.quoting import quoted

UINT64_MAX = 2**64 - 1
_UINT64_DIGITS_MAX = 20

_DIGITS = re.compile(r"[0-9]*")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]*")
_PLAIN = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})")


class SemverError(ValueError):
    """A text that is not a semantic version."""


class Semver:
    """A version; compares by precedence."""

    __slots__ = ("build", "major", "minor", "order_key", "patch", "pre_release")

    major: int
    minor: int
    patch: int
    pre_release: tuple[int | str, ...]
    build: tuple[str, ...]
    order_key: tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]

    def __init__(
        self, major: int, minor: int, patch: int, pre_release: tuple[int | str, ...] = (), build: tuple[str, ...] = ()
    ) -> None:
        """A version from checked parts; texts go through `parse`."""
        set_field = object.__setattr__
        set_field(self, "major", major)
        set_field(self, "minor", minor)
        set_field(self, "patch", patch)
        set_field(self, "pre_release", pre_release)
        set_field(self, "build", build)
        # A release ranks above its pre-releases, numbers below words, a longer list above its own prefix.
        ranks = tuple((False, part, "") if isinstance(part, int) else (True, 0, part) for part in pre_release)
        set_field(self, "order_key", (major, minor, patch, not pre_release, ranks))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Semver is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Semver is immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[Semver], tuple[int, int, int, tuple[int | str, ...], tuple[str, ...]]]:
        return Semver, (self.major, self.minor, self.patch, self.pre_release, self.build)

    @staticmethod
    def parse(text: str, normalize: bool = False) -> Semver:
        """The version in `text`, normalized if requested; SemverError with Kubernetes' message if invalid."""
        plain = _PLAIN.fullmatch(text)
        if plain:
            return Semver(int(plain[1]), int(plain[2]), int(plain[3]))
        return _parse(_normalized(text) if normalize else text)

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by precedence."""
        return (self.order_key > other.order_key) - (self.order_key < other.order_key)

    def __eq__(self, other: object) -> bool:
        return self.order_key == other.order_key if isinstance(other, Semver) else NotImplemented

    def __lt__(self, other: Semver) -> bool:
        return self.order_key < other.order_key if isinstance(other, Semver) else NotImplemented

    def __le__(self, other: Semver) -> bool:
        return self.order_key <= other.order_key if isinstance(other, Semver) else NotImplemented

    def __gt__(self, other: Semver) -> bool:
        return self.order_key > other.order_key if isinstance(other, Semver) else NotImplemented

    def __ge__(self, other: Semver) -> bool:
        return self.order_key >= other.order_key if isinstance(other, Semver) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.order_key)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.pre_release:
            text += "-" + ".".join(map(str, self.pre_release))
        if self.build:
            text += "+" + ".".join(self.build)
        return text

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"


def _parse(text: str) -> Semver:
    if not text:
        raise SemverError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    major, minor = _number("Major", parts[0]), _number("Minor", parts[1])
    rest, has_build, build_text = parts[2].partition("+")
    rest, has_pre_release, pre_release_text = rest.partition("-")
    patch = _number("Patch", rest)
    pre_release = tuple(_pre_release_part(part) for part in pre_release_text.split(".")) if has_pre_release else ()
    build = tuple(_build_part(part) for part in build_text.split(".")) if has_build else ()
    return Semver(major, minor, patch, pre_release, build)


def _normalized(text: str) -> str:
    """Without a leading v and leading zeros, and with the numbers that a short version omits."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_leading_zeros(part) for part in parts]
    if len(parts) < 3 and ("+" in parts[-1] or "-" in parts[-1]):
        raise SemverError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_leading_zeros(part: str) -> str:
    if len(part.encode(errors="replace")) <= 1:
        return part
    part = part.lstrip("0")
    return part if part[:1].isascii() and part[:1].isdigit() else "0" + part


def _number(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in {name.lower()} number {quoted(text)}")
    if len(text) > 1 and text[0] == "0":
        raise SemverError(f"{name} number must not contain leading zeroes {quoted(text)}")
    return _uint64(text)


def _uint64(text: str) -> int:
    if not text:
        raise SemverError('strconv.ParseUint: parsing "": invalid syntax')
    # The length is checked first: Python refuses to parse very long numbers, and slowly.
    if len(text) > _UINT64_DIGITS_MAX or int(text) > UINT64_MAX:
        raise SemverError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _pre_release_part(text: str) -> int | str:
    if not text:
        raise SemverError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise SemverError(f"Numeric PreRelease version must not contain leading zeroes {quoted(text)}")
        return _uint64(text)
    if not _IDENTIFIER.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in prerelease {quoted(text)}")
    return text


def _build_part(text: str) -> str:
    if not text:
        raise SemverError("Build meta data is empty")
    if not _IDENTIFIER.fullmatch(text):
        raise SemverError(f"Invalid character(s) found in build meta data {quoted(text)}")
    return text
