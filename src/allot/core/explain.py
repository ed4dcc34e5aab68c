"""Reasons as data: why a request got nothing, per device and as a summary.

The allocator produces them; events, `allot explain` and the dashboard show them. Nothing here knows how an allocation
is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

NAMES_MAX = 3


class Obstacle(StrEnum):
    """What can keep a request from getting a device."""

    NOT_IN_CLASS = "NotInClass"
    SELECTOR = "Selector"
    SELECTOR_ERROR = "SelectorError"
    NOT_ON_NODE = "NotOnNode"
    POOL_INCOMPLETE = "PoolIncomplete"
    POOL_INVALID = "PoolInvalid"
    CAPACITY = "Capacity"
    TAINT = "Taint"
    FEATURE = "Feature"
    IN_USE = "InUse"
    COUNTER = "Counter"
    COMPATIBILITY_GROUP = "CompatibilityGroup"
    CONSTRAINT = "Constraint"


class DeviceReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why one device does not fit."""

    device: str
    obstacle: Obstacle
    # The phrase for a group of devices: "have memory 40Gi, need 80Gi".
    text: str
    # The selector sub-expression that decided.
    expression: str = ""
    # What the device has and what was needed, if known.
    actual: str = ""
    needed: str = ""
    # Claims that hold the device.
    claims: tuple[str, ...] = ()


class RequestReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why one request of a claim could not be met on a node."""

    claim: str
    request: str
    node: str
    device_class: str
    needed: int
    # Devices of the class that the node can see.
    devices: int
    # Of those, the devices that are available when considered individually.
    free: int
    # Why even the free devices cannot be used together with the rest of the claims.
    together: str = ""
    in_the_way: tuple[DeviceReason, ...] = ()

    def sentence(self) -> str:
        """The summary for a user."""
        return f'request "{self.request}": {self.text()}'

    def text(self) -> str:
        """The sentence without the name of the request."""
        if not self.devices:
            parts = _grouped(self.in_the_way)
            why = f": {'; '.join(parts)}" if parts else ""
            return f"no devices in class {self.device_class} on node {self.node}{why}"
        inside = [r for r in self.in_the_way if r.obstacle != Obstacle.NOT_IN_CLASS]
        parts = _grouped(tuple(inside))
        if self.free:
            parts.append(f"{self.free} {'is' if self.free == 1 else 'are'} free" + _need_more(self))
        if self.together:
            parts.append(self.together)
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"{devices} in class {self.device_class}: {'; '.join(parts)}"


def summarize(reasons: Sequence[RequestReason]) -> list[str]:
    """One sentence per problem, shared by requests with the same problem. Claims are named if there are several."""
    many = len({reason.claim for reason in reasons}) > 1
    groups: dict[tuple[str, str], list[RequestReason]] = {}
    for reason in reasons:
        groups.setdefault((reason.claim, reason.text()), []).append(reason)
    sentences = []
    for (claim, text), members in groups.items():
        names = [f'"{member.request}"' for member in members]
        if len(names) == 1:
            whom = f"request {names[0]}"
        elif len(names) <= NAMES_MAX:
            whom = f"requests {', '.join(names)}"
        else:
            whom = f"requests {names[0]}, {names[1]} and {len(names) - 2} more"
        sentences.append(f"claim {claim}, {whom}: {text}" if many else f"{whom}: {text}")
    return sentences


def _need_more(reason: RequestReason) -> str:
    return f", {reason.needed} are needed" if reason.free < reason.needed else ""


def _grouped(reasons: tuple[DeviceReason, ...]) -> list[str]:
    """One phrase per kind of obstacle, the most frequent first."""
    groups: dict[tuple[Obstacle, str], list[DeviceReason]] = {}
    for reason in reasons:
        groups.setdefault((reason.obstacle, reason.text), []).append(reason)
    phrases = []
    for (_, text), members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        claims = sorted({claim for member in members for claim in member.claims})
        phrases.append(numbered(len(members), text) + _holders(claims))
    return phrases


_SINGULAR = {
    "have": "has",
    "allow": "allows",
    "are": "is",
    "do": "does",
    "draw": "draws",
    "fail": "fails",
    "lack": "lacks",
    "need": "needs",
}


def numbered(count: int, text: str) -> str:
    """A phrase about several devices, after their number: `1 has memory 40Gi, need 80Gi`."""
    verb, _, rest = text.partition(" ")
    return f"{count} {_SINGULAR.get(verb, verb) if count == 1 else verb} {rest}"


def _holders(claims: list[str]) -> str:
    if not claims:
        return ""
    if len(claims) == 1:
        return f" (claim {claims[0]})"
    if len(claims) <= NAMES_MAX:
        return f" (claims {', '.join(claims)})"
    return f" (claim {claims[0]} and {len(claims) - 1} more)"
