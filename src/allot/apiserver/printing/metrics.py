"""NodeMetrics and PodMetrics, in metrics-server's columns."""

from __future__ import annotations

from allot.apiserver.printing.cells import NAME, Cells, Moment, Object, Printer, name_of, text
from allot.apiserver.resources import Column
from allot.core.quantity import Quantity

_COLUMNS = (
    NAME,
    Column("cpu", format="quantity"),
    Column("memory", format="quantity"),
    Column("Window", format="duration"),
)


def _cells(metrics: Object, _: Moment) -> Cells:
    usages = [each["usage"] for each in metrics.get("containers") or [metrics]]
    return [name_of(metrics), *(_sum(usages, name) for name in ("cpu", "memory")), text(metrics, "window")]


def _sum(usages: list[Object], name: str) -> str:
    amounts = [Quantity.parse(usage[name]) for usage in usages]
    return str(Quantity.from_nano(sum(each.nano for each in amounts), amounts[0].format))


METRICS = Printer(_COLUMNS, _cells)
