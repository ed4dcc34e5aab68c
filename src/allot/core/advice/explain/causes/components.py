"""Control plane components that do not run, according to their pods and leases."""

from __future__ import annotations

import msgspec

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.wording import duration
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, observed_v1

SCHEDULER, CONTROLLERS = "kube-scheduler", "kube-controller-manager"
_NAMESPACE = "kube-system"
_LABEL = "component"
# Leaders renew every few seconds.
_SILENT_MIN_S = 60


class Down(msgspec.Struct, frozen=True):
    """A component that does not run. text: phrased to follow its name."""

    text: str
    advice: str


def down(what_if: WhatIfCluster, component: str) -> Down | None:
    """Why a component does not run; None if it does, or if the snapshot does not tell."""
    return _crashing(what_if, component) or _silent(what_if, component)


def _crashing(what_if: WhatIfCluster, component: str) -> Down | None:
    """All its pods fail."""
    pods = [
        pod
        for pod in what_if.all(core_v1.Pod)
        if pod.metadata.namespace == _NAMESPACE and pod.metadata.labels.get(_LABEL) == component
    ]
    found = [container_trouble(what_if, pod) for pod in pods]
    first = next(iter(found), None)
    if first is None or not all(found):
        return None
    advice = f"fix pod {full_name(pods[0])}: {first.advice[0]}" if first.advice else f"see pod {full_name(pods[0])}"
    return Down(f"does not run: in pod {full_name(pods[0])}, {first.text}", advice)


def _silent(what_if: WhatIfCluster, component: str) -> Down | None:
    """Its lease is stale."""
    lease = what_if.get(observed_v1.Lease, component, _NAMESPACE)
    if lease is None or not lease.spec.renew_time or what_if.taken_at is None:
        return None
    try:
        age = int(what_if.taken_at - seconds_of(lease.spec.renew_time))
    except ValueError:
        return None
    if age < max(_SILENT_MIN_S, 2 * lease.spec.lease_duration_seconds):
        return None
    holder = lease.spec.holder_identity.partition("_")[0]
    by = f" of {holder}" if holder else ""
    text = f"has not renewed its Lease {_NAMESPACE}/{component}{by} for {duration(age)}: it does not run"
    return Down(text, f"start {component}{f' on {holder}' if holder else ''}, and see its log")
