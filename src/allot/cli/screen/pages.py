"""The pages: their columns and the cells of a row. Pure: rows of the dashboard's model in, texts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from allot.apiserver.printing.cells import duration
from allot.dashboard.views.nodes import in_order

Row = Mapping[str, Any]
# A text, and the style that it is drawn in.
Cell = tuple[str, str]
_GI = 1 << 30
# A symbol for each state of a device, so that states differ in more than color.
SIGNS: Mapping[str, Cell] = {
    "f": ("□", "green"),
    "p": ("◪", "cyan"),
    "u": ("■", "blue"),
    "b": ("▣", "blue"),
    "x": ("▨", "yellow"),
}
UNHEALTHY: Cell = ("✗", "bold red")
LEGEND = "□ free  ◪ partly  ■ in use  ▣ blocked by a part  ▨ unavailable  ✗ unhealthy"
_SIGNS_MAX = 96
_BAD = "red"
_DIM = "dim"


class Line(msgspec.Struct, frozen=True):
    """A row of a page. key: of the object that it is about; order: rows are sorted by it."""

    key: str
    cells: tuple[Cell, ...]
    order: tuple[Any, ...]
    # The searchable text: everything in the row.
    text: str = ""


class Page(msgspec.Struct, frozen=True):
    """A page. table: of the model, or the question whose answer it shows; about: the kind of a row, in the words of `explain` and of the API."""

    name: str
    title: str
    columns: tuple[str, ...]
    cells: Callable[[str, Row, float], tuple[Cell, ...]]
    order: Callable[[str, Row], tuple[Any, ...]]
    table: str
    asks: bool = False
    explains: str = ""
    kind: str = ""
    shows: Callable[[Row], bool] = lambda _row: True
    empty: str = "There are none."

    def lines(self, rows: Iterable[tuple[str, Row]], now: float) -> list[Line]:
        """What is shown of these rows, in order."""
        found = [self._line(key, row, now) for key, row in rows if self.shows(row)]
        return sorted(found, key=lambda line: line.order)

    def _line(self, key: str, row: Row, now: float) -> Line:
        cells = self.cells(key, row, now)
        text = " ".join(text for text, _ in cells).lower()
        return Line(key, cells, self.order(key, row), text)


def matches(line: Line, words: str) -> bool:
    """Whether a row contains all of these words."""
    return all(word in line.text or word in line.key.lower() for word in words.lower().split())


def _plain(*texts: object) -> tuple[Cell, ...]:
    return tuple((str(text), "") for text in texts)


def _age(at: object, now: float) -> str:
    try:
        seconds = now - datetime.fromisoformat(str(at)).astimezone(UTC).timestamp()
    except ValueError:
        return ""
    return duration(max(seconds, 0.0))


# --- nodes and their devices ---


def _devices(row: Row) -> Iterator[Row]:
    for pool in row.get("dev", ()):
        yield from pool["d"]


def signs_of(row: Row) -> list[Cell]:
    """A symbol for each device of a node, grouped by NUMA node."""
    found: list[Cell] = []
    before: object = None
    for device in _devices(row):
        numa = device.get("u")
        if found and numa != before:
            found.append((" ", ""))
        before = numa
        found.append(UNHEALTHY if "x" in device else SIGNS[device["s"]])
    return found


def _models(row: Row) -> str:
    named = {pool.get("m") or device.get("m", "") for pool in row.get("dev", ()) for device in pool["d"]}
    return ", ".join(sorted(named - {""}))


def _free(row: Row) -> str:
    states = [device["s"] for device in _devices(row)]
    return f"{states.count('f')}/{len(states)}" if states else "-"


def _node_state(row: Row) -> Cell:
    if row.get("unknown"):
        return "gone, or not readable", _BAD
    closed = row.get("closed", "")
    return (closed, "yellow") if closed else ("takes pods", "")


def _cluster_cells(key: str, row: Row, _now: float) -> tuple[Cell, ...]:
    signs = signs_of(row)
    shown = "".join(sign for sign, _ in signs[:_SIGNS_MAX]) + ("…" if len(signs) > _SIGNS_MAX else "")
    return (key, ""), (shown, "devices"), (_free(row), ""), (_models(row), _DIM), _node_state(row)


def _share(pair: Sequence[int], unit: int) -> str:
    asked, there = pair
    return f"{asked / unit:.4g}/{there / unit:.4g}"


def _node_cells(key: str, row: Row, now: float) -> tuple[Cell, ...]:
    if "cpu" not in row:
        return ((key, ""), _node_state(row), *_plain("-", "-", "-", _free(row), "-", "-", ""))
    used, most = row["pods"]
    return (
        (key, ""),
        _node_state(row),
        *_plain(_share(row["cpu"], 1000), _share(row["mem"], _GI), f"{used}/{most}", _free(row), row.get("group", "-")),
        *_plain(_age(row.get("at"), now)),
        (", ".join(row.get("taints", ())), _DIM),
    )


# --- pods, claims, gangs, events ---


def _pending_cells(key: str, row: Row, now: float) -> tuple[Cell, ...]:
    state = row["s"]
    return (
        (key, ""),
        (state, _BAD if state == "Stuck" else "yellow"),
        *_plain(
            _age(row.get("at"), now), row.get("tries", "-"), row.get("prio", 0), ", ".join(row.get("claims", ())) or "-"
        ),
        # That it is unschedulable is what the page is about.
        (
            f"{row['why']}: {row['msg']}" if row.get("why") not in (None, "", "Unschedulable") else row.get("msg", ""),
            "",
        ),
    )


_CLAIM_STYLES = {"pending": "yellow", "idle": "cyan", "deleting": "magenta"}


def _claim_cells(key: str, row: Row, now: float) -> tuple[Cell, ...]:
    state = row["s"]
    devices = [each.split("/", 1)[1] for each in row.get("d", ())]
    users = row.get("pods") or [f"{name} (waits)" for name in row.get("waiting", ())]
    return (
        (key, ""),
        (state, _CLAIM_STYLES.get(state, "")),
        *_plain(_age(row.get("since") or row.get("at"), now)),
        (f"{row['use'][0]}%" if "use" in row else "-", "cyan" if "low" in row else ""),
        *_plain(", ".join(users) or "-", "; ".join(row.get("asks", ()))),
        (row.get("x", ""), _BAD),
        *_plain(", ".join(devices) or "-"),
    )


def _gang_cells(key: str, row: Row, now: float) -> tuple[Cell, ...]:
    state = row["s"]
    return (
        (key, ""),
        (state, "" if state in ("placed", "done") else "yellow"),
        *_plain(f"{row['placed']}/{row['pods']}", row["min"], _age(row.get("at"), now), row.get("queue", "-")),
        *_plain(", ".join(row.get("domains", ())) or "-", row.get("msg", "")),
    )


def _event_cells(_key: str, row: Row, now: float) -> tuple[Cell, ...]:
    times = f" (x{row['count']})" if row.get("count", 1) > 1 else ""
    return (
        *_plain(_age(row.get("at"), now)),
        (row.get("reason", ""), _BAD if row.get("warn") else ""),
        *_plain(
            f"{row.get('kind', '').lower()}/{row.get('name', '')}", row.get("ns", ""), f"{row.get('msg', '')}{times}"
        ),
    )


# --- answers ---


def queue_rows(answer: Row) -> Iterator[tuple[str, Row]]:
    """One row for each resource of each queue that is used or requested."""
    for place, queue in enumerate(answer.get("queues", ())):
        shown = [each for each in queue["resources"] if each["resource"] in answer.get("resources", ())]
        for number, each in enumerate(shown):
            yield f"{queue['name']}\0{number}", {**each, "queue": queue, "place": (place, number)}


def _queue_cells(_key: str, row: Row, _now: float) -> tuple[Cell, ...]:
    queue, is_first = row["queue"], row["place"][1] == 0
    waiting = sum(job["waiting"] for job in queue.get("jobs", ()))
    name = f"{'  ' * queue['depth']}{queue['name']}" if is_first else ""
    return (
        (name, _BAD if queue.get("problem") else ""),
        *_plain(row["resource"], row["deserved"], row["limit"], row["fairShare"], row["allocated"], row["pending"]),
        *_plain(waiting if is_first else ""),
    )


def capacity_rows(answer: Row) -> Iterator[tuple[str, Row]]:
    """Device classes, and then models."""
    for place, by in enumerate(("class", "model")):
        for row in answer.get(by, {}).get("rows", ()):
            yield f"{by}/{row['driver']}/{row['name']}", {**row, "by": by, "place": place}


def _capacity_cells(_key: str, row: Row, _now: float) -> tuple[Cell, ...]:
    fragmentation = row["fragmentation"]
    return (
        (row["name"], ""),
        (row["by"], _DIM),
        *_plain(row["total"], row["free"], row["partly"], row["inUse"], row["unavailable"]),
        *_plain(fragmentation["largestBlock"], f"{fragmentation['share']:.0%}"),
        (row.get("problem", ""), _BAD),
    )


PAGES: tuple[Page, ...] = (
    Page(
        "cluster", "Cluster", ("NODE", "DEVICES", "FREE", "MODEL", "STATE"), _cluster_cells,
        lambda key, row: (not any(_devices(row)), in_order(key)), "nodes", kind="Node",
    ),
    Page(
        "pending", "Pending", ("POD", "STATE", "AGE", "TRIED", "PRIO", "CLAIMS", "WHY"), _pending_cells,
        lambda key, row: (-row.get("prio", 0), str(row.get("at")), in_order(key)), "pods", explains="pod", kind="Pod",
        shows=lambda row: "msg" in row, empty="No pod waits.",
    ),
    Page(
        "claims", "Claims", ("CLAIM", "STATE", "SINCE", "BUSY", "PODS", "ASKS", "TROUBLE", "DEVICES"), _claim_cells,
        lambda key, _row: (in_order(key),), "claims", explains="claim", kind="ResourceClaim",
    ),
    Page(
        "queues", "Queues", ("QUEUE", "RESOURCE", "DESERVED", "LIMIT", "FAIR SHARE", "ALLOCATED", "PENDING", "WAITING"),
        _queue_cells, lambda _key, row: row["place"], "queues", asks=True, explains="queue", empty="There are no queues.",
    ),
    Page(
        "gangs", "Gangs", ("GANG", "STATE", "PLACED", "MINIMUM", "AGE", "QUEUE", "DOMAINS", "SAID"), _gang_cells,
        lambda key, row: (row["s"] in ("placed", "done"), key), "gangs", explains="gang", kind="PodGroup",
        empty="There are no gangs.",
    ),
    Page(
        "nodes", "Nodes", ("NODE", "STATE", "CPU", "MEMORY GI", "PODS", "FREE DEVICES", "POOL", "AGE", "TAINTS"), _node_cells,
        lambda key, _row: (in_order(key),), "nodes", kind="Node",
    ),
    Page(
        "capacity", "Capacity",
        ("NAME", "BY", "TOTAL", "FREE", "PARTLY", "IN USE", "UNAVAILABLE", "LARGEST", "FRAGMENTED", "TROUBLE"),
        _capacity_cells, lambda key, row: (row["place"], -row["total"], key), "capacity", asks=True,
        empty="No devices are published.",
    ),
    Page(
        "events", "Events", ("AGE", "REASON", "OBJECT", "NAMESPACE", "MESSAGE"), _event_cells,
        lambda _key, row: (_Newest(str(row.get("at"))),), "events", kind="Event",
    ),
)  # fmt: skip


class _Newest(str):
    """Sorts in reverse time order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str(self) > str(other)


def object_of(page: Page, key: str, row: Row) -> tuple[str, str, str]:
    """Kind, namespace and name of a row's object; empty if it cannot be shown."""
    if page.name == "events":
        return str(row.get("kind", "")), str(row.get("ns", "")), str(row.get("name", ""))
    if page.kind in ("", "Node"):
        return page.kind, "", key
    namespace, _, name = key.partition("/")
    return page.kind, namespace, name


def question_of(page: Page, key: str) -> Mapping[str, str]:
    """The `explain` argument of a row; empty if there is nothing to explain."""
    if not page.explains:
        return {}
    if page.name == "queues":
        return {"kind": page.explains, "ns": "", "name": key.partition("\0")[0]}
    namespace, _, name = key.partition("/")
    return {"kind": page.explains, "ns": namespace, "name": name}
