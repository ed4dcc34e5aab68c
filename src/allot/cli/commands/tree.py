"""`allot tree`: shows related objects, from a pod to its devices and from a device to its pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from allot.cli.errors import Refused, Unreadable
from allot.cli.output import OutputFormat, output_option, write, write_value
from allot.cli.snapshots import in_namespace, need, read_snapshot, snapshot_options
from allot.core.advice.tree import Branch, claim_tree, device_tree, node_tree, pod_tree
from allot.core.advice.usage.published import published_pools
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct
from allot.reading.snapshots import SnapshotSource

_KINDS = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "claim": "claim",
    "claims": "claim",
    "resourceclaim": "claim",
    "resourceclaims": "claim",
    "node": "node",
    "nodes": "node",
    "no": "node",
    "device": "device",
    "devices": "device",
}
_TYPES: dict[str, type[APIStruct]] = {
    "pod": core_v1.Pod,
    "claim": api.ResourceClaim,
    "node": core_v1.Node,
    "device": api.ResourceSlice,
}
_COLOURS = {"device": "green", "claim": "cyan"}


@click.command()
@click.argument("subject", metavar="[KIND/]NAME")
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace.  [default: that of the context]")
@snapshot_options
@output_option
def tree(subject: str, source: SnapshotSource, namespace: str, output: OutputFormat) -> None:
    """Show how objects belong together, as a tree.

    For a pod: its containers, their claims, the requests in these, and the devices with their distinguishing attributes. For a claim:
    the same, starting with the claim. For a node: its devices and who holds them. For a device (`device/NAME` or
    `device/DRIVER/POOL/NAME`): who holds it. NAME alone is a pod.

    CDI ids are not in the API: they are shown if the driver's naming scheme is known, otherwise as unknown.

    Exit code: 0 done, 1 the object does not exist or may not be read, 2 the input is unreadable, 3 the cluster cannot be reached.

    \b
    Examples:
      allot tree pod/train -n ml
      allot tree claim/shared-gpu -f dump.yaml
      allot tree node/node-a
      allot tree device/gpu-0 -o json
    """
    kind, _, name = subject.partition("/") if "/" in subject else ("pod", "", subject)
    if kind not in _KINDS or not name:
        raise Unreadable(f"{subject!r}: expected pod/NAME, claim/NAME, node/NAME or device/NAME")
    source = in_namespace(source, namespace)
    snapshot = read_snapshot(source)
    need(snapshot, _TYPES[_KINDS[kind]])
    found = list(_trees(WhatIfCluster(snapshot), _KINDS[kind], name, source.namespace))
    if output is not OutputFormat.TABLE:
        for branch in found:
            write_value(_value(branch), output)
        return
    for branch in found:
        _draw(branch, "", "")


def _trees(what_if: WhatIfCluster, kind: str, name: str, namespace: str) -> Iterator[Branch]:
    if kind == "pod":
        pod = what_if.get(core_v1.Pod, name, namespace)
        if pod is None:
            raise _missing("pod", f"{namespace}/{name}")
        yield pod_tree(what_if, pod)
    elif kind == "claim":
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None:
            raise _missing("claim", f"{namespace}/{name}")
        yield claim_tree(what_if, claim)
    elif kind == "node":
        if name not in what_if.cluster.nodes:
            raise _missing("node", name)
        yield node_tree(what_if, name)
    else:
        entries = [
            (pool, entry)
            for pool in published_pools(what_if)
            for entry in pool.entries
            if name in (entry.id.device, f"{entry.id.pool}/{entry.id.device}", str(entry.id))
        ]
        if not entries:
            raise _missing("device", name)
        yield from (device_tree(what_if, pool, entry) for pool, entry in entries)


def _missing(kind: str, name: str) -> Refused:
    hints = {"pod": "-n names another namespace", "claim": "allot top claims -A lists all claims"}
    return Refused(f"{kind} {name}: not found", hints.get(kind, "allot get devices lists all devices"))


def _value(branch: Branch) -> dict[str, Any]:
    """The branch for programs: facts have the names of fields, and not of columns."""
    facts = {_field_name(name): value for name, value in branch.facts.items()}
    return {**msgspec.structs.asdict(branch), "facts": facts, "children": [_value(child) for child in branch.children]}


def _field_name(words: str) -> str:
    first, *others = words.split(" ")
    return "".join((first, *(word.capitalize() for word in others)))


def _draw(branch: Branch, first: str, rest: str) -> None:
    facts = ", ".join(f"{name} {value}" for name, value in branch.facts.items())
    title = f"{branch.kind} {branch.name}".rstrip()
    write(f"{first}{title}{f': {facts}' if facts else ''}", _COLOURS.get(branch.kind))
    if branch.problem:
        stem = "│  " if branch.children else "   "
        write(f"{rest}{stem}! {branch.problem}", "red")
    for number, child in enumerate(branch.children):
        is_last = number == len(branch.children) - 1
        _draw(child, f"{rest}{'└─ ' if is_last else '├─ '}", f"{rest}{'   ' if is_last else '│  '}")
