"""What needs attention: a sentence for each bad number, with the page that shows it and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_NAMED_MAX = 3


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers. Times are those of objects, or seconds since 1970. longest: of the pods that wait; idle, unused: claims, with how
    many devices they hold and since when; gangs: that are not placed, with what they have and need."""

    nodes: int = 0
    closed: Mapping[str, str] = {}
    devices: int = 0
    free: int = 0
    unavailable: int = 0
    sick: Mapping[str, str] = {}
    waiting: int = 0
    longest: str = ""
    longest_since: str | None = None
    pending_claims: int = 0
    idle: Sequence[tuple[str, int, str | None]] = ()
    unused: Sequence[tuple[str, int, float]] = ()
    gangs: Sequence[tuple[str, int, int]] = ()
    incomplete: Sequence[tuple[str, str]] = ()


def attention_rows(facts: Facts) -> dict[str, dict[str, Any]]:
    """The sentences, by what they are about. text: what is wrong; do: what helps; to: the page that shows it, with its parameters."""
    found: dict[str, dict[str, Any]] = {}

    def say(about: str, text: str, do: str, page: str, **more: Any) -> None:
        since = more.pop("since", None)
        found[about] = {"text": text, "do": do, "to": [page, more], **({"since": since} if since else {})}

    if facts.sick:
        text = f"{_count(len(facts.sick), 'device is', 'devices are')} unhealthy: {_named(facts.sick)}."
        say(
            "sick",
            text,
            "Pods keep an unhealthy device until they end: taint it, or replace the card.",
            "cluster",
            states="h",
        )
    if facts.closed:
        text = (
            f"{len(facts.closed)} of {_count(facts.nodes, 'node takes', 'nodes take')} no pods: {_named(facts.closed)}."
        )
        say("nodes", text, "New pods cannot use free devices there.", "nodes", q=_filter(facts.closed))
    if facts.incomplete:
        text = f"{_count(len(facts.incomplete), 'pool is', 'pools are')} incomplete: {_named(dict(facts.incomplete))}."
        say("pools", text, "No new claim gets its devices until the driver has published the rest.", "cluster")
    if facts.unavailable:
        text = f"{_count(facts.unavailable, 'device is', 'devices are')} unavailable."
        say("unavailable", text, "Tainted, or on a node that takes no pods.", "cluster", states="x")
    if facts.devices and not facts.free:
        say("free", "No device is free.", "The next pod that asks for a whole one waits.", "capacity")
    if facts.waiting:
        text = f"{_count(facts.waiting, 'pod waits', 'pods wait')}, {facts.longest} the longest."
        say(
            "waiting",
            text,
            "The page shows the cause and what helps.",
            "pending",
            pod=facts.longest,
            since=facts.longest_since,
        )
    if facts.gangs:
        gangs = {name: f"{placed} of {needed} placed" for name, placed, needed in facts.gangs}
        text = f"{_count(len(gangs), 'gang is', 'gangs are')} not placed: {_named(gangs)}."
        say("gangs", text, "A gang starts when all the pods that it needs fit.", "gangs", gang=next(iter(gangs)))
    if facts.pending_claims:
        text = f"{_count(facts.pending_claims, 'claim has', 'claims have')} no devices yet."
        say("pending", text, "A claim gets devices when a pod that names it is scheduled.", "claims", s="pending")
    if facts.idle:
        text = f"{_holding(facts.idle)} that no pod uses: {_names([name for name, _, _ in facts.idle])}."
        oldest = min((since for _, _, since in facts.idle if since), default=None)
        say("idle", text, "Delete claims that are no longer needed.", "claims", s="idle", since=oldest)
    if facts.unused:
        text = f"{_holding(facts.unused)} that their pods hardly use: {_names([name for name, _, _ in facts.unused])}."
        say(
            "unused",
            text,
            "Ask their owners: a smaller device may be enough.",
            "claims",
            u="low",
            since=min(at for _, _, at in facts.unused),
        )
    return found


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _holding(claims: Sequence[tuple[str, int, Any]]) -> str:
    devices = sum(count for _, count, _ in claims)
    return f"{_count(len(claims), 'claim holds', 'claims hold')} {_count(devices, 'device', 'devices')}"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED_MAX])
    return f"{shown} and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else shown


def _named(reasons: Mapping[str, str]) -> str:
    """Names, each with what is wrong with it."""
    shown = ", ".join(f"{name} ({reasons[name]})" for name in sorted(reasons)[:_NAMED_MAX])
    return f"{shown} and {len(reasons) - _NAMED_MAX} more" if len(reasons) > _NAMED_MAX else shown


def _filter(closed: Mapping[str, str]) -> str:
    """Words by which a list shows these: the reason, if it is the same for all."""
    reasons = set(closed.values())
    return next(iter(reasons)) if len(reasons) == 1 else ""
