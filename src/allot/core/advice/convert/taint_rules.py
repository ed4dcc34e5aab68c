"""DeviceTaintRule: unchanged in all versions, except for selection by class and CEL, which 1.35 removed."""

from __future__ import annotations

from allot.core.advice.convert.changes import shown
from allot.core.advice.convert.objects import RESOURCE_V1, Object, at, mapping

RULE = "taint-rule"


def convert_taint_rule(found: Object) -> None:
    """A rule of any version to v1."""
    selector = mapping(at(found.present, ("spec", "deviceSelector")))
    for name in ("deviceClassName", "selectors"):
        if selector.get(name):
            # Dropping it may leave an empty selector, which taints every device.
            found.book.error(
                ("spec", "deviceSelector", name),
                f"{name}: {shown(selector[name])} was removed in Kubernetes 1.35 and restricts which devices are tainted",
                rule=RULE,
                hint="select by driver, pool and device instead",
            )
    if found.api_version != RESOURCE_V1:
        found.book.change(
            ("apiVersion",), found.api_version, RESOURCE_V1, "v1 is the version to use", rule="old-api-version"
        )
        found.value = {**found.present, "apiVersion": RESOURCE_V1}
