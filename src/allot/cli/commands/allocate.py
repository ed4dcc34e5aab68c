"""`allot allocate`: which devices claims get, or why they get none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from allot.cli.errors import Unreadable
from allot.cli.output import TERMINAL, OutputFormat, output_option, progress, talk, write, write_table, write_value
from allot.cli.placement import Placement, claim_name, inventory_of, nodes_of, place, units_of
from allot.cli.scenarios import ScenarioResult, answer_lines, holds_scenarios, parse_features
from allot.core.allocation import DEFAULT_FEATURES, POLICIES, Features, Policy, Unallocatable
from allot.core.explain import RequestReason
from allot.core.model import resource_v1
from allot.core.model.codec import encode
from allot.reading.cluster import cluster_from
from allot.reading.manifests import manifests_in, read_sources

EXIT_REFUSED = 1
EXIT_UNREADABLE = 2
NODE_GROUPS_SHOWN_MAX = 10
_SHARE_ID_IN_SCENARIOS = "*"


def _features(_context: click.Context, _parameter: click.Parameter, value: str | None) -> Features | None:
    return None if value is None else parse_features(value)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--node", metavar="NAME", help="Only this node. By default, each node in turn until one fits.")
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default="first-fit",
    show_default=True,
    help="first-fit: the devices that Kubernetes takes. pack: the devices that fragment the node least.",
)
@click.option(
    "--features",
    metavar="NAMES",
    callback=_features,
    help="Allocator features to apply: a comma-separated list, 'default' or 'all'. Scenario lines name their own.",
)
@click.option("--together", is_flag=True, help="Claims without a pod must be on one node, like those of one pod.")
@output_option
def allocate(
    files: tuple[str, ...],
    node: str | None,
    policy: str,
    features: Features | None,
    together: bool,
    output: OutputFormat,
) -> int:
    """Allocate devices to claims, as the Kubernetes scheduler would.

    FILE is YAML or JSON with DeviceClasses, ResourceSlices, claims, nodes, and optionally pods, claim templates and
    taint rules; the output of `kubectl get -o yaml`, a directory, or - for stdin. Claims with an allocation in their
    status hold their devices; the others are allocated one after another. If the input has pods, the claims of a pod are
    allocated together. Without Node objects, every node that a ResourceSlice names is assumed to exist.

    A file of scenario lines (.jsonl) has one JSON object per line with node, classes, slices, claims, allocated and
    features; the command prints one JSON answer per line: name, results, error, reasons.

    Exit code: 0 if everything fits (or every scenario line was answered), 1 if something does not, 2 if the input
    is unreadable.

    \b
    Examples:
      allot allocate cluster/ claim.yaml
      allot allocate cluster/ claim.yaml --node node-a -o json
      allot allocate cluster/ claims/ --policy pack
      allot allocate scenarios.jsonl --features all
      kubectl get nodes,deviceclasses,resourceslices,resourceclaims -A -o yaml | allot allocate -
    """
    sources = list(read_sources(files))
    scenarios = [source for source, data in sources if holds_scenarios(data, source)]
    if scenarios and len(scenarios) < len(sources):
        other = next(source for source, _ in sources if source not in scenarios)
        raise Unreadable(
            f"{scenarios[0]} contains scenario lines, but {other} contains manifests: expected one of the two"
        )
    if scenarios:
        return _answer_scenarios(sources, features, POLICIES[policy], output)
    return _place_manifests(sources, node, POLICIES[policy], features or DEFAULT_FEATURES, together, output)


# --- scenario lines ---


def _answer_scenarios(
    sources: Sequence[tuple[str, bytes]], features: Features | None, policy: Policy, output: OutputFormat
) -> int:
    # Each answer is a JSON line, which a table would only truncate.
    line_format = OutputFormat.YAML if output is OutputFormat.YAML else OutputFormat.JSON
    unreadable = False
    with progress("allocating", sum(data.count(b"\n") + 1 for _, data in sources), writes=True) as advance:
        for source, data in sources:
            for outcome in answer_lines(data, source, features, policy):
                unreadable |= not outcome.readable
                write_value(_scenario_answer(outcome), line_format)
                advance()
    return EXIT_UNREADABLE if unreadable else 0


def _scenario_answer(outcome: ScenarioResult) -> dict[str, Any]:
    results = None if outcome.results is None else [_without_share_ids(result) for result in outcome.results]
    return {
        "name": outcome.name,
        "results": results,
        "error": outcome.error,
        "reasons": _reasons(outcome.refusal),
    }


def _without_share_ids(result: resource_v1.AllocationResult) -> dict[str, Any]:
    encoded = encode(result)
    for device in encoded["devices"].get("results", ()):
        if "shareID" in device:
            device["shareID"] = _SHARE_ID_IN_SCENARIOS
    return encoded


def _reasons(refusal: Unallocatable | None) -> list[dict[str, Any]]:
    if refusal is None:
        return []
    undecided = [{"message": refusal.summary()[0], "undecided": True}] if refusal.undecided else []
    return undecided + [_reason(reason) for reason in refusal.reasons]


def _reason(reason: RequestReason) -> dict[str, Any]:
    return {"message": reason.sentence(), **msgspec.to_builtins(reason)}


# --- manifests ---


def _place_manifests(
    sources: Sequence[tuple[str, bytes]],
    node: str | None,
    policy: Policy,
    features: Features,
    together: bool,
    output: OutputFormat,
) -> int:
    cluster = cluster_from([manifest for source, data in sources for manifest in manifests_in(data, source)], TERMINAL)
    claims = cluster.of(resource_v1.ResourceClaim)
    units = units_of(cluster, together)
    if not units:
        if not claims:
            raise Unreadable("nothing to allocate: expected a ResourceClaim, or a Pod with resourceClaims")
        talk(f"note: nothing to allocate: each of the {len(claims)} claims already has an allocation")
        return 0
    placements = place(inventory_of(cluster, features), nodes_of(cluster, node), units, policy)
    with progress("allocating", len(units), writes=output is not OutputFormat.TABLE) as advance:
        shown = _show_each(placements, output, advance)
    if output is OutputFormat.TABLE:
        _show_tables(shown)
    return 0 if all(placement.results is not None for placement in shown) else EXIT_REFUSED


def _show_each(placements: Iterator[Placement], output: OutputFormat, advance: Any) -> list[Placement]:
    shown = []
    for placement in placements:
        if output is not OutputFormat.TABLE:
            write_value(_placement_answer(placement), output)
        shown.append(placement)
        advance()
    return shown


def _placement_answer(placement: Placement) -> dict[str, Any]:
    reasons = [
        reason
        for refusal in placement.refusals
        for reason in (_reasons(refusal.answer) or [{"message": refusal.error, "node": refusal.node}])
    ]
    return {
        "name": placement.unit.name,
        "node": placement.node,
        "claims": [claim_name(claim) for claim in placement.claims],
        "results": None if placement.results is None else [encode(result) for result in placement.results],
        "error": placement.error,
        "reasons": reasons,
    }


def _show_tables(placements: Sequence[Placement]) -> None:
    rows = [row for placement in placements for row in _rows(placement)]
    if rows:
        write_table(("CLAIM", "NODE", "REQUEST", "DEVICE", "TAKES"), rows)
    for placement in placements:
        if placement.results is None:
            if rows or placement is not placements[0]:
                write()
            _show_refusal(placement)


def _rows(placement: Placement) -> Iterator[tuple[str, ...]]:
    for claim, allocation in zip(placement.claims, placement.results or (), strict=True):
        for result in allocation.devices.results:
            device = f"{result.driver}/{result.pool}/{result.device}"
            yield claim_name(claim), placement.node or "", result.request, device, _takes(result)


def _takes(result: resource_v1.DeviceRequestAllocationResult) -> str:
    """The allocated part of the device: a share's amounts, admin access, or all of it."""
    if result.admin_access:
        return "admin access"
    if result.share_id is None:
        return "whole device"
    return ", ".join(f"{amount} {name}" for name, amount in sorted(result.consumed_capacity.items())) or "a share"


def _show_refusal(placement: Placement) -> None:
    if placement.error is not None:
        write(f"{placement.unit.name}: cannot be allocated: {placement.error}", "red")
        return
    groups: dict[tuple[str, ...], list[str]] = {}
    for refusal in placement.refusals:
        sentences = tuple(refusal.answer.summary()) if refusal.answer is not None else (refusal.error or "",)
        # Nodes with nothing to offer differ only in their name.
        key = tuple(sentence.replace(f" on node {refusal.node}", "") for sentence in sentences)
        groups.setdefault(key, []).append(refusal.node)
    count = len(placement.refusals)
    verdict = "is not known to fit" if _is_undecided(placement) else "does not fit"
    write(f"{placement.unit.name}: {verdict} on {'the node' if count == 1 else f'any of {count} nodes'}", "red")
    for sentences, nodes in list(groups.items())[:NODE_GROUPS_SHOWN_MAX]:
        for sentence in sentences:
            write(f"  {_nodes_text(nodes)}: {sentence}")
    if len(groups) > NODE_GROUPS_SHOWN_MAX:
        write(f"  and {len(groups) - NODE_GROUPS_SHOWN_MAX} more; -o json shows all of them")


def _is_undecided(placement: Placement) -> bool:
    return any(refusal.answer is not None and refusal.answer.undecided for refusal in placement.refusals)


def _nodes_text(nodes: Sequence[str]) -> str:
    if len(nodes) <= 3:
        return ", ".join(nodes)
    return f"{nodes[0]}, {nodes[1]} and {len(nodes) - 2} more nodes"
