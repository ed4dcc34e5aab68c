"""`allot plan`: how many more copies of a manifest fit, what blocks the next one, and how added or removed nodes change that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec

from allot.cli.errors import Refused, Unreadable
from allot.cli.expanders import parse_expanders
from allot.cli.output import OutputFormat, output_option, progress, talk, write, write_table, write_value
from allot.cli.snapshots import in_namespace, need, read_snapshot, snapshot_options
from allot.core.advice.compute_classes import classes_of, reason_line
from allot.core.advice.explain.report import Explanation
from allot.core.advice.explain.text import lines
from allot.core.advice.explain.wording import count, listed
from allot.core.advice.planning.changes import (
    ChangeError,
    drained,
    nodes_like,
    nodes_named,
    with_assumed_capacity,
    with_machines,
    with_objects,
    without_nodes,
)
from allot.core.advice.planning.copies import Manifest, NoTemplate
from allot.core.advice.planning.filling import Blocked
from allot.core.advice.planning.manifest import ManifestError, read_manifest
from allot.core.advice.planning.maximum import Maximum
from allot.core.advice.planning.outcome import PlanResult, outcome_of
from allot.core.advice.planning.purchase import PurchasePlan, plan_purchase
from allot.core.advice.planning.queues import QueueResult, QueuesResult, all_waiting, raised
from allot.core.advice.planning.reasons import why_none_fits
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.advice.usage.queues import resources_shown
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.expanders import EXPANDERS
from allot.core.autoscaling.pools import price_text
from allot.core.model import core_v1
from allot.core.model.codec import DecodeError
from allot.core.model.compute_classes import KIND as COMPUTE_CLASS
from allot.core.model.compute_classes import ComputeClass
from allot.core.model.convert import ConversionError
from allot.core.model.meta import APIStruct
from allot.core.model.resource_v1 import DeviceClass, ResourceSlice
from allot.core.scheduling import Policy, Settings
from allot.reading.manifests import read_manifests
from allot.reading.snapshots import SnapshotSource

EXIT_NONE_FITS = 1
COPIES_MAX = 100_000
_NODES_SHOWN_MAX = 20
_JOBS_SHOWN_MAX = 20
_POLICIES = {"default": Policy.DEFAULT, "pack": Policy.PACK, "spread": Policy.SPREAD, "first-fit": Policy.FIRST_FIT}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that define the other cluster."""

    add: tuple[str, ...] = ()
    add_like: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    raises: tuple[str, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The changes as given on the command line."""
        named = (
            ("add", self.add),
            ("add-like", self.add_like),
            ("remove", self.remove),
            ("drain", self.drain),
            ("raise", self.raises),
        )
        return [f"{name} {value}" for name, values in named for value in values]


@click.command()
@click.argument("manifests", nargs=-1, metavar="[MANIFEST...]")
@click.option("--add", multiple=True, metavar="PROFILE=N", help="Add N nodes of this profile (h100x8), or the nodes of a file. Repeatable.")  # fmt: skip
@click.option("--add-like", multiple=True, metavar="NODE=N", help="Add N nodes like this one.")
@click.option("--remove", multiple=True, metavar="NODE", help="Remove this node, or the nodes with these labels.")
@click.option("--drain", multiple=True, metavar="NODE", help="The same, but their pods must fit elsewhere first.")
@click.option("--raise", "raises", multiple=True, metavar="QUEUE:RESOURCE=N",
              help="Let this queue and its ancestors deserve N more (training:gpu=16). Limits increase by the same amount.")  # fmt: skip
@click.option("--max", "limit", type=click.IntRange(1, COPIES_MAX), default=COPIES_MAX, metavar="N",
              help="Stop after this number of copies.")  # fmt: skip
@click.option("--pools", multiple=True, metavar="SPEC", help="Show what an autoscaler would buy. A pool: NAME=MACHINE,max=3,price=5.07, or a file of pools, as in `allot up --pool`. "
"Repeatable.")  # fmt: skip
@click.option("--copies", type=click.IntRange(0, COPIES_MAX), default=None, metavar="N",
              help="With --pools: the number of copies of the manifest.  [default: 1]")  # fmt: skip
@click.option("--expander", default="price", show_default=True, metavar="NAMES", callback=parse_expanders,
              help=f"With --pools: how to choose among sets of nodes that help: {', '.join(EXPANDERS)}.")  # fmt: skip
@click.option("--policy", type=click.Choice(list(_POLICIES)), default="default", show_default=True,
              help="How the scheduler chooses nodes.")  # fmt: skip
@snapshot_options
@output_option
def plan(
    manifests: tuple[str, ...],
    add: tuple[str, ...],
    add_like: tuple[str, ...],
    remove: tuple[str, ...],
    drain: tuple[str, ...],
    raises: tuple[str, ...],
    limit: int,
    pools: tuple[str, ...],
    copies: int | None,
    expander: tuple[str, ...],
    policy: str,
    source: SnapshotSource,
    output: OutputFormat,
) -> int:
    """Show how many more copies of a manifest fit into a cluster, what blocks the next one, and what would change in another cluster.

    MANIFEST is a pod, a workload with a pod template (a copy is one of its pods), a PodGroup with its pods (a copy is the gang),
    or claims alone. SCHEDULED is what the scheduler would place if you created the copies now, one after another; MAXIMUM is what
    fits with the best choice of nodes and devices: exact, or "at most" if that is unknown.
    ResourceQuotas of the namespace count, as in admission. FREE is what these pods can use: devices on nodes that
    accept them, without taints that they do not tolerate. The command never writes anything.

    With --pools: which nodes an autoscaler would buy for the pending pods and for copies of the manifest (which is optional), their
    price per hour, and for pods that no pool helps, the reason and a machine that would help.

    Pods of a queue are limited by its limits, and BY RIGHT is how many copies start if other queues give back what they must;
    other pending jobs come first if it is their turn. Without a MANIFEST: what becomes of all jobs that wait in queues.

    Exit code: 0 at least one more copy or pending job fits (after the changes, if any), 1 none fits, or nodes and
    devices may not be listed, 2 the input is unreadable, 3 the cluster cannot be reached.

    \b
    Examples:
      allot plan train.yaml
      allot plan train.yaml -f dump.yaml --max 10 -o json
      allot plan gang.yaml --add h100x8=4 --add-like node-a=2
      allot plan train.yaml --drain node-a --remove 'pool in (old, older)'
      allot plan gang.yaml --raise training:gpu=16               if this queue deserved 16 more
      allot plan --raise training:gpu=16 --add h100x8=2          and which pending jobs would start
      allot plan train.yaml --copies 3 --pools a100=a2-ultragpu-1g,max=2 --pools pools.yaml
    """
    if pools:
        return _plan_pools(manifests, pools, 1 if copies is None else copies, expander, source, output)
    if copies is not None:
        raise click.UsageError("--copies is for --pools; use --max to limit the number of copies.")
    change = Change(add=add, add_like=add_like, remove=remove, drain=drain, raises=raises)
    settings = Settings(preempts=False, policy=_POLICIES[policy])
    try:
        if not manifests:
            return _plan_queues(source, change, settings, output)
        return _plan_copies(manifests, source, change, limit, settings, output)
    except ChangeError as error:
        raise Refused(str(error)) from None


def _plan_copies(
    manifests: tuple[str, ...],
    source: SnapshotSource,
    change: Change,
    limit: int,
    settings: Settings,
    output: OutputFormat,
) -> int:
    values = [manifest.value for manifest in read_manifests(manifests)]
    if not values:
        raise Unreadable(f"{', '.join(manifests)}: no objects: expected at least one")
    namespaces = {found for value in values if (found := _namespace(value))}
    snapshot = _read(in_namespace(source, namespaces.pop() if len(namespaces) == 1 else ""))
    try:
        manifest = read_manifest(values, snapshot)
        snapshot = with_objects(snapshot, manifest.context)
        now = _outcome(snapshot, (), manifest, limit, settings)
        then = None
        if change.texts:
            snapshot, displaced = _changed(snapshot, change)
            then = _outcome(snapshot, displaced, manifest, limit, settings)
        last = then or now
        why = None if _fits(last) or last.is_blocked_by_quota else why_none_fits(snapshot, manifest)
    except (ManifestError, NoTemplate) as error:
        raise Refused(f"{', '.join(manifests)}: {error}") from None
    except (DecodeError, ConversionError) as error:
        raise Unreadable(f"{', '.join(manifests)}: {error}", "allot lint shows what is wrong with a manifest") from None
    for note in (*manifest.notes, *last.notes):
        talk(f"note: {note}")
    if output is OutputFormat.TABLE:
        _write(manifest, now, then, change, why)
    else:
        answer = {"manifest": manifest.name, "changes": change.texts, "notes": list(manifest.notes)}
        outcomes = {"now": now, "changed": then, "explanation": why}
        write_value({**answer, **msgspec.to_builtins(outcomes)}, output)
    return 0 if _fits(last) else EXIT_NONE_FITS


def _fits(outcome: PlanResult) -> bool:
    """Whether at least one copy starts, possibly after others give back what they borrowed."""
    return bool(outcome.scheduled or (outcome.queue is not None and outcome.queue.copies))


def _read(source: SnapshotSource) -> Snapshot:
    snapshot = read_snapshot(source)
    need(snapshot, core_v1.Node, DeviceClass, ResourceSlice)
    snapshot, silent = with_assumed_capacity(snapshot)
    if silent:
        talk(f"note: {silent} nodes do not state CPU, memory and pods: assumed to be enough")
    return snapshot


# --- what waits in queues ---


def _plan_queues(source: SnapshotSource, change: Change, settings: Settings, output: OutputFormat) -> int:
    snapshot = _read(source)
    now = all_waiting(WhatIfCluster(snapshot, settings=settings))
    if not now.queues:
        raise Unreadable("nothing to plan with: expected a MANIFEST, or a cluster with queues")
    then = None
    if change.texts:
        snapshot, _ = _changed(snapshot, change)
        then = all_waiting(WhatIfCluster(snapshot, settings=settings))
    if output is OutputFormat.TABLE:
        _write_queues(now, then, change)
    else:
        write_value({"changes": change.texts, **msgspec.to_builtins({"now": now, "changed": then})}, output)
    last = then or now
    return 0 if last.starting or not last.waiting else EXIT_NONE_FITS


def _write_queues(now: QueuesResult, then: QueuesResult | None, change: Change) -> None:
    rows = [("now", str(now.waiting), str(now.starting))]
    if then is not None:
        rows.append((", ".join(change.texts), str(then.waiting), str(then.starting)))
    write("jobs that wait in queues:")
    write_table(("CLUSTER", "WAITING", "STARTING"), rows)
    write()
    shown = resources_shown(now.queues)
    shares = []
    for before, after in zip(now.queues, (then or now).queues, strict=True):
        for old, new in zip(before.resources, after.resources, strict=True):
            if old.resource in shown:
                name = f"{'  ' * before.depth}{before.name}"
                pairs = ((old.deserved, new.deserved), (old.fair_share, new.fair_share))
                shares.append((name, old.resource, *(_change(*pair) for pair in pairs), old.allocated, old.pending))
    write_table(("QUEUE", "RESOURCE", "DESERVED", "FAIR SHARE", "ALLOCATED", "PENDING"), shares)
    jobs = [(row.name, job) for row in (then or now).queues for job in row.jobs if job.waiting]
    before_by_name = {job.name: job.reason for row in now.queues for job in row.jobs}
    if not jobs:
        return
    write()
    for queue, job in jobs[:_JOBS_SHOWN_MAX]:
        write(f"{job.name} in queue {queue} ({job.asks}): {_change(before_by_name.get(job.name, ''), job.reason)}")
    if len(jobs) > _JOBS_SHOWN_MAX:
        write(f"and {len(jobs) - _JOBS_SHOWN_MAX} more jobs; -o json has all of them")


def _change(before: str, after: str) -> str:
    old, new = ("-" if text == "unlimited" else text for text in (before, after))
    return new if old == new or not old else f"{old} -> {new}"


def _namespace(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    found = metadata.get("namespace") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def _outcome(
    snapshot: Snapshot, displaced: Sequence[core_v1.Pod], manifest: Manifest, limit: int, settings: Settings
) -> PlanResult:
    devices = sum(len(slice_.spec.devices or ()) for slice_ in snapshot.of(ResourceSlice))
    with progress("placing copies", min(limit, devices)) as advance:
        return outcome_of(WhatIfCluster(snapshot, settings=settings), manifest, limit, displaced, advance)


# --- pools ---


def _plan_pools(
    manifests: tuple[str, ...],
    texts: tuple[str, ...],
    copies: int,
    expander: tuple[str, ...],
    source: SnapshotSource,
    output: OutputFormat,
) -> int:
    # Imported late: drivers take longer to import than most plans take.
    from allot.cli.pools import NamedPools

    values = [manifest.value for manifest in read_manifests(manifests)] if manifests else []
    snapshot = read_snapshot(source)
    need(snapshot, core_v1.Node, core_v1.Pod, DeviceClass, ResourceSlice)
    try:
        compute_classes = [*snapshot.of(ComputeClass), *_compute_classes(values)]
        named = NamedPools(texts, snapshot, compute_classes)
        manifest = read_manifest(values, snapshot) if values else None
        context = manifest.context if manifest is not None else ()
        snapshot = with_objects(_with_machines(snapshot, named.device_classes), context)
        made = [manifest.copy(number) for number in range(copies)] if manifest is not None else []
    except (ManifestError, NoTemplate) as error:
        raise Refused(f"{', '.join(manifests)}: {error}") from None
    except (DecodeError, ConversionError) as error:
        raise Unreadable(f"{', '.join(manifests)}: {error}", "allot lint shows what is wrong with a manifest") from None
    what_if = WhatIfCluster(snapshot)
    known = classes_of(compute_classes)
    found = plan_purchase(what_if, named.pools(), made, expander, named.others(), known)
    if output is OutputFormat.TABLE:
        _write_purchase(found)
    else:
        write_value(msgspec.to_builtins(found), output)
    return 0 if not found.unhelped else EXIT_NONE_FITS


def _compute_classes(values: Iterable[Mapping[str, Any]]) -> Iterator[ComputeClass]:
    """The classes of the manifests, which need not be in the cluster yet."""
    for value in values:
        if value.get("kind") == COMPUTE_CLASS:
            found = read_object(value)
            if isinstance(found, ComputeClass):
                yield found


def _write_purchase(found: PurchasePlan) -> None:
    plan = found.plan
    there = [each for each in plan.expectations if each.is_helped and not each.bought]
    if not plan.expectations:
        write("No pod waits for a node.")
        return
    if there:
        write(f"{count(len(there), 'unit')} of {len(plan.expectations)} will fit on existing nodes.")
    if plan.purchases:
        rows: list[tuple[str, ...]] = [
            (each.pool, f"+{each.count}", f"{each.size} of {each.max_size}", price_text(each.count * each.price))
            for each in plan.purchases
        ]
        head: tuple[str, ...] = ("POOL", "NODES", "THEN", "PER HOUR")
        if any(each.compute_class for each in plan.purchases):
            head = (*head, "CLASS", "PRIORITY")
            told = [(each.compute_class, each.priority) for each in plan.purchases]
            rows = [(*row, *more) for row, more in zip(rows, told, strict=True)]
        write_table(head, rows)
        if plan.is_exact:
            write(f"{found.cost_per_hour} per hour; no other set of nodes is better.")
        else:
            write(
                f"{found.cost_per_hour} per hour; no set that helps the same pods costs less than {found.bound_per_hour}."
            )
    elif not found.unhelped:
        write("No node is needed.")
    for each in found.unhelped[:_NODES_SHOWN_MAX]:
        write()
        of_class = f" of ComputeClass {each.compute_class}" if each.compute_class else ""
        write(f"{each.unit}: no pool{of_class} helps.", "red")
        for reason in each.reasons:
            write(f"  {reason_line(reason).removeprefix('pool ')}")
    for pool in found.missing:
        write()
        nodes = "a node" if pool.nodes == 1 else f"{pool.nodes} nodes"
        write(
            f"Missing: a pool of {pool.machine} ({pool.price_per_hour} per hour); {nodes} would be enough for {', '.join(pool.units)}."
        )
    if found.beyond_help:
        write()
        write(f"No known machine is enough for {', '.join(found.beyond_help)}.")


# --- the other cluster ---


def _changed(snapshot: Snapshot, change: Change) -> tuple[Snapshot, Sequence[core_v1.Pod]]:
    added = [*_added(snapshot, change)]
    gone = {name for text in change.remove for name in nodes_named(snapshot, text)}
    leaving = {name for text in change.drain for name in nodes_named(snapshot, text)} - gone
    if gone:
        snapshot = without_nodes(snapshot, gone)
    displaced: Sequence[core_v1.Pod] = ()
    if leaving:
        done = drained(snapshot, leaving)
        snapshot, displaced = done.snapshot, done.displaced
    for text in change.raises:
        snapshot = raised(snapshot, text)
    return _with_machines(snapshot, added), displaced


def _added(snapshot: Snapshot, change: Change) -> Iterator[APIStruct]:
    # Imported late: drivers take longer to import than most plans take.
    from allot.cli.up.node_sets import parse_count, parse_sets
    from allot.devices.node_files import default_name
    from allot.devices.node_templates import objects_of

    for text in change.add_like:
        yield from nodes_like(snapshot, *parse_count(text, "--add-like"))
    taken = {node.metadata.name for node in snapshot.of(core_v1.Node)}
    for text in change.add:
        for nodes in parse_sets(text, "--add"):
            if not taken.isdisjoint(nodes.names):
                nodes = msgspec.structs.replace(nodes, name=f"{nodes.name or default_name(nodes.profile)}-new")
            yield from objects_of(nodes)


def _with_machines(snapshot: Snapshot, added: Iterable[APIStruct]) -> Snapshot:
    found, new = with_machines(snapshot, added)
    if new:
        talk(f"note: not in the cluster, assumed as their drivers install them: DeviceClasses {', '.join(new)}")
    return found


# --- text output ---


def _write(
    manifest: Manifest, now: PlanResult, then: PlanResult | None, change: Change, why: Explanation | None
) -> None:
    rows: list[tuple[str, ...]] = [("now", *_cells(now))]
    if then is not None:
        rows.append((", ".join(change.texts), *_cells(then)))
    outcome = then or now
    write(f"{manifest.name}:")
    if outcome.queue is not None:
        for row, found in zip(range(len(rows)), (now, then), strict=False):
            rows[row] = (*rows[row], str(found.queue.copies) if found is not None and found.queue is not None else "-")
        write_table(("CLUSTER", "NODES", "SCHEDULED", "MAXIMUM", "BY RIGHT"), rows)
        _write_by_right(outcome.queue)
    else:
        write_table(("CLUSTER", "NODES", "SCHEDULED", "MAXIMUM"), rows)
    if now.waiting:
        waiting = "1 pod already waits" if now.waiting == 1 else f"{now.waiting} pods already wait"
        talk(f"note: {waiting} for a node; no room is reserved")
    if outcome.maximum.reason and outcome.blocked is not None:
        write(f"The maximum is a bound: {outcome.maximum.reason}.")
    if then is not None and (then.moved or then.stranded):
        write()
        total = then.moved + len(then.stranded)
        write(f"Drained nodes have {count(total, 'pod')}, of which {then.moved} would fit elsewhere.")
        for stranded in then.stranded[:_NODES_SHOWN_MAX]:
            write(f"  {stranded.pod}: {stranded.blocked.explanation or stranded.blocked.message}", "red")
    if why is not None:
        write()
        write("No copy fits. If one were created:")
        for line in lines(why):
            write(line, "red" if line == why.cause else None)
    elif outcome.blocked is not None:
        _write_blocked(outcome.blocked)
    _write_places(outcome)


def _write_by_right(found: QueueResult) -> None:
    write()
    text = f"queue {found.queue} starts {count(found.copies, 'copy')}"
    if found.leaving:
        text += f", for which {listed(found.leaving)} {'has' if len(found.leaving) == 1 else 'have'} to make room"
    write(f"{text}; the next one: {found.blocked}" if found.blocked else f"{text} or more")


def _cells(outcome: PlanResult) -> tuple[str, ...]:
    return str(outcome.nodes), str(outcome.scheduled), _maximum(outcome.maximum, outcome.blocked is not None)


def _maximum(maximum: Maximum, is_blocked: bool) -> str:
    if not is_blocked:
        return f"{maximum.copies} or more"
    return str(maximum.copies) if maximum.is_exact else f"at most {maximum.copies}"


def _write_blocked(blocked: Blocked) -> None:
    write()
    write(f"The next one is blocked: {blocked.message}", "red")
    if blocked.explanation:
        write(f"  {blocked.explanation}")
    if len(blocked.nodes) > 1:
        for reason in blocked.nodes:
            more = reason.count - len(reason.examples)
            write(f"  {reason.reason}: {', '.join(reason.examples)}{f' and {more} more' if more else ''}")


def _write_places(outcome: PlanResult) -> None:
    if outcome.placement:
        write()
        shown = outcome.placement[:_NODES_SHOWN_MAX]
        write_table(("NODE", "PODS"), [(share.node, str(share.pods)) for share in shown])
        more = len(outcome.placement) - len(shown)
        if more:
            write(f"and {more} more nodes; -o json has all of them")
    if outcome.classes:
        write()
        rows = [
            (
                change.name,
                str(change.free_before),
                str(change.free_after),
                f"{change.fragmentation_before:.0%}",
                f"{change.fragmentation_after:.0%}",
            )
            for change in outcome.classes
        ]
        write_table(("CLASS", "FREE BEFORE", "FREE AFTER", "FRAGMENTED BEFORE", "FRAGMENTED AFTER"), rows)
