"""Health checks: their names are kube-apiserver's where they check the same.

A step of the start is healthy once it is done, as upstream's hooks: what fails later is noticed by other checks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

import msgspec

from allot.core.quoting import quoted

# A name and a check that returns what is wrong, or nothing. Anyone may see it: no paths, no addresses.
Check = tuple[str, Callable[[], Awaitable[str | None]]]

_PREFIX = "poststarthook/"
# What API aggregation does first: registrations and trust are written, and other servers followed.
AGGREGATION_HOOKS = (
    "start-cluster-authentication-info-controller",
    "start-kube-aggregator-informers",
    "apiservice-registration-controller",
    "apiservice-status-local-available-controller",
    "apiservice-status-remote-available-controller",
    "apiservice-discovery-controller",
    "kube-apiserver-autoregistration",
)
_HOOKS = (
    # Rules, claims and leases are read and followed.
    "generic-apiserver-start-informers",
    "crd-informer-synced",
    "start-apiextensions-informers",
    "start-apiextensions-controllers",
    "start-system-namespaces-controller",
    "rbac/bootstrap-roles",
    "scheduling/bootstrap-system-priority-classes",
    # The Service of the server itself.
    "bootstrap-controller",
    *AGGREGATION_HOOKS,
)


class StartHooks:
    """The steps of a server's start."""

    def __init__(self) -> None:
        self._finished: set[str] = set()

    def finish(self, *names: str) -> None:
        """These are done."""
        assert set(names) <= set(_HOOKS), f"unknown steps {names}"
        self._finished.update(names)

    def checks(self) -> tuple[Check, ...]:
        """A check for each."""
        return tuple((f"{_PREFIX}{name}", self._check(name)) for name in _HOOKS)

    def _check(self, name: str) -> Callable[[], Awaitable[str | None]]:
        async def check() -> str | None:
            return None if name in self._finished else "not finished"

        return check


async def check_log() -> str | None:
    """Whether messages can be written. They are written at once: a log that blocks blocks this answer, too."""
    for handler in (*logging.getLogger().handlers, *logging.getLogger("allot").handlers):
        try:
            handler.flush()
        except OSError as error:
            return error.strerror or type(error).__name__
    return None


class HealthReport(msgspec.Struct, frozen=True):
    """The outcome of checks, as text."""

    is_healthy: bool
    text: str


async def report(
    path: str, checks: Collection[Check], excluded: Collection[str], note: Callable[[str, bool], None]
) -> HealthReport:
    """All checks but those excluded. note: told each outcome."""
    lines, failed = [], False
    for name, check in checks:
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
            continue
        problem = await check()
        note(name, problem is None)
        failed = failed or problem is not None
        lines.append(f"[+]{name} ok" if problem is None else f"[-]{name} failed: {problem}")
    unknown = sorted(set(excluded) - {name for name, _ in checks})
    if unknown:
        names = ", ".join(map(quoted, unknown))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    lines.append(f"{path} check {'failed' if failed else 'passed'}")
    return HealthReport(not failed, "\n".join(lines) + "\n")
