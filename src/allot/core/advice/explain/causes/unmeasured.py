"""Capacities that a driver publishes as 0 because it cannot read them: no device has none of its memory."""

from __future__ import annotations

import re
from typing import NamedTuple

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.devices import Wanted, device_id
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.explain import Obstacle

_ZERO = re.compile(r"have (?P<name>\S+) 0, need \S+")
# What drivers need to read the sizes of their devices.
_NEEDS = {"gpu.intel.com": "Helm value kubeletPlugin.privileged=true, or xpumdEnabled=true"}


class Unmeasured(NamedTuple):
    """A capacity that a driver does not know. text: phrased to follow a sentence about the devices."""

    text: str
    advice: str


def unmeasured(what_if: WhatIfCluster, wanted: Wanted) -> Unmeasured | None:
    """A capacity that is 0 on all devices that a selector excludes for it; None if there is none."""
    for tally in wanted.found.of(Obstacle.SELECTOR):
        found = _ZERO.fullmatch(tally.reason.text)
        if found is None:
            continue
        ids = [device_id(device) for device in tally.devices]
        driver, name = ids[0].driver, found["name"]
        pods = [full_name(pod) for id_ in ids for pod in driver_pods.plugins(what_if, driver, id_.pool)]
        needs = f" ({_NEEDS[driver]})" if driver in _NEEDS else ""
        log = f", and see the log of {named('pod', pods)}" if pods else ", and see its log"
        return Unmeasured(
            f"; driver {driver} publishes {name} 0, because it could not read it",
            f"let driver {driver} read the {name} of its devices{needs}{log}",
        )
    return None
