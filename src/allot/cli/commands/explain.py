"""`allot explain`: why a pod, a claim, a gang or a queue waits or a workload is not as wanted, and what would help."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from allot.cli.errors import Refused, Unreadable
from allot.cli.gates import parse_gates
from allot.cli.output import OutputFormat, progress, write, write_value
from allot.cli.snapshots import in_namespace, read_snapshot, snapshot_options
from allot.core.advice.explain.answer import Explainer, NotFound, UnknownKind
from allot.core.advice.explain.report import Explanation, State
from allot.core.advice.explain.text import lines
from allot.core.advice.explain.workloads.answer import BY_WORD
from allot.core.advice.snapshot import Snapshot
from allot.core.autoscaling.pools import Pool
from allot.core.features import FeatureGates
from allot.core.model.compute_classes import ComputeClass
from allot.reading.snapshots import SnapshotSource

EXIT_PENDING = 1
# Objects that the collector knows: of a cluster with some hundred nodes.
_LARGE_MIN = 200_000
_KINDS: Mapping[str, str] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "claim": "claim",
    "resourceclaim": "claim",
    "resourceclaims": "claim",
    "podgroup": "group",
    "podgroups": "group",
    "gang": "group",
    "queue": "queue",
    "queues": "queue",
    **{word: word for word in BY_WORD},
}
_SPOKEN = "pod, claim, podgroup, queue, deploy, rs, sts, ds, job, jobset, cronjob, hpa, pvc, svc, pdb, namespace, node or resourceslice"
_WAITS = (State.PENDING, State.STARTING, State.NOT_AS_WANTED)


@click.command()
@click.argument("target", required=False, metavar="[KIND/]NAME")
@click.argument("name", required=False, metavar="")
@click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace.  [default: that of the context]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Without a name: everything in all namespaces.")
@snapshot_options
@click.option(
    "--feature-gates",
    "gates",
    default="default",
    show_default=True,
    metavar="GATES",
    callback=parse_gates,
    help="The feature gates of the cluster's scheduler: 'default', 'all' or NAME=true,NAME=false.",
)
@click.option(
    "--pools",
    multiple=True,
    metavar="SPEC",
    help="What an autoscaler could buy: NAME=MACHINE,max=3,price=5.07 or a file, as in `allot up --pool`; the answer says whether it "
    "helps.",
)
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="The output format.",
)
def explain(
    target: str | None,
    name: str | None,
    namespace: str,
    all_namespaces: bool,
    source: SnapshotSource,
    gates: FeatureGates,
    pools: tuple[str, ...],
    output: str,
) -> int:
    """Explain why a pod (claim/NAME, podgroup/NAME, queue/NAME) does not run or a workload is not in its desired state, and what would help.

    The first line is the cause. The smallest changes that would let it run follow, each tried with the scheduler's own
    decision on the changed cluster, and what excludes devices from its requests. Workloads (deploy, rs, sts, ds, job,
    jobset, cronjob, hpa), PersistentVolumeClaims (pvc), Services (svc), PodDisruptionBudgets (pdb), namespaces, nodes and ResourceSlices have kubectl's
    names; their cause comes from pods, conditions, events and rollouts. Any other kind (rayjob, pytorchjob, lws) is explained by the pods and workloads that it owns. For a queue: its shares, which of its jobs wait and why, and who must give back what. Without a name: every workload that is not in its desired state and every other pending pod, a line each. The command
    reads the cluster of the kubeconfig, with read-only permissions, or a dump (-f).

    Exit codes: 0 in the desired state or nothing waits, 1 not, 2 wrong usage or unreadable input, 3 the cluster cannot be reached.

    \b
    Examples:
      allot explain train-0                         the pod train-0
      allot explain claim/train-0-gpu -n ml         the claim
      allot explain podgroup/train -n ml            the gang, with any scheduler's PodGroup
      allot explain queue/research                  why its jobs wait, and who makes room for whom
      allot explain deploy/infer                    why its rollout is stuck
      allot explain job train -n ml                 why it failed or does not start
      allot explain rayjob/tune -n ml               why what it has created does not run
      allot explain node/gpu-7                      why it is not ready, or takes no pods
      allot explain -A                              everything that is not in its desired state, and why
      allot explain train-0 --pools l4=g2-standard-4    would an autoscaler with this pool help?
      allot explain train-0 -f dump.yaml            offline; allot snapshot > dump.yaml creates a dump
      kubectl get pods,nodes,resourceclaims,deviceclasses,resourceslices -A -o yaml | allot explain train-0 -f -
    """
    kind, wanted = _target(target, name)
    with _without_collector():
        source = in_namespace(source, namespace)
        snapshot = read_snapshot(source)
        explainer = Explainer(snapshot, gates, pools=_pools(pools, snapshot))
        namespace = namespace or source.namespace
        if not wanted:
            return _overview(explainer, None if all_namespaces else namespace, output)
        try:
            if kind == "queue":
                found = explainer.queue(wanted)
            elif kind in BY_WORD:
                found = explainer.workload(kind, namespace, wanted)
            elif kind in (asks := {"pod": explainer.pod, "claim": explainer.claim, "group": explainer.group}):
                found = asks[kind](namespace, wanted)
            else:
                found = explainer.owner(kind, namespace, wanted)
        except NotFound as error:
            raise Refused(error.message, error.hint or None) from None
        except UnknownKind:
            told = f"kind {kind!r} cannot be explained: expected {_SPOKEN}"
            raise Unreadable(
                told, "any other kind is explained by the pods and workloads that name it as their owner"
            ) from None
    _print(found, output)
    return EXIT_PENDING if found.state in _WAITS else 0


def _pools(texts: tuple[str, ...], snapshot: Snapshot) -> Sequence[Pool]:
    if not texts:
        return ()
    # Imported late: drivers take longer to import than most explanations take.
    from allot.cli.pools import NamedPools

    return NamedPools(texts, snapshot, snapshot.of(ComputeClass)).pools()


@contextmanager
def _without_collector() -> Iterator[None]:
    """A large snapshot creates millions of objects that stay until the end; searching them for garbage, also when the program
    ends, takes a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        # Objects created since that still exist.
        if gc.get_count()[0] > _LARGE_MIN:
            gc.freeze()
        gc.enable()


def _target(target: str | None, name: str | None) -> tuple[str, str]:
    """Kind and name: `NAME`, `KIND/NAME` or `KIND NAME`."""
    if target is None:
        return "pod", ""
    word, slash, rest = target.partition("/")
    if name is not None:
        word, rest = target, name
    elif not slash:
        return "pod", target
    word = word.lower().partition(".")[0]
    return _KINDS.get(word, word), rest


def _print(found: Explanation, output: str) -> None:
    if output == "text":
        for number, line in enumerate(lines(found)):
            write(line, "yellow" if not number and found.state in _WAITS else None)
    else:
        write_value(_plain(found), OutputFormat(output))


def _plain(found: Explanation) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(found)
    return value


def _overview(explainer: Explainer, namespace: str | None, output: str) -> int:
    if output == "text":
        told = list(explainer.overview(namespace))
        for line in told or [f"nothing waits in {f'namespace {namespace}' if namespace else 'any namespace'}"]:
            write(line)
        return EXIT_PENDING if told else 0
    pods, workloads = explainer.pending(namespace), list(explainer.wrong_workloads(namespace))
    for found in workloads:
        write_value(_plain(found), OutputFormat(output))
    with progress("explaining pods", len(pods), writes=True) as advance:
        for of, name in pods:
            found = explainer.pod(of, name)
            advance()
            write_value(_plain(found), OutputFormat(output))
    return EXIT_PENDING if pods or workloads else 0
