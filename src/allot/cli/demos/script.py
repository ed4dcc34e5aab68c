"""The parts of a demonstration, as data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"text": "say"}):
    """A sentence to the audience."""

    text: str


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"command": "run"}):
    """A command as a user would type it, and what to show of its output."""

    command: str
    # Lines of the output that are shown; 0 shows all.
    lines_max: int = 0
    # A regular expression for the first line to show.
    starts_at: str = ""
    # The expected exit code.
    code: int = 0
    # A regular expression that the output must match; the command is repeated until it does.
    shows: str = ""


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "show"}):
    """An object of the manifest, by kind and name: what the demonstration is about."""

    kind: str
    name: str


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"pods": "wait"}):
    """Wait until pods are in a state: Running, Succeeded, Failed, Unschedulable, or Gone."""

    pods: tuple[str, ...]
    state: str


Step = Say | Run | Show | Wait
# By the first word of a step in catalogue.yaml.
STEPS: Mapping[str, type[Step]] = {"say": Say, "run": Run, "show": Show, "wait": Wait}


class Topic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subject of a demonstration, and its cluster."""

    name: str
    title: str
    namespace: str
    # What `allot up` is given for --node: the content of a file of nodes.
    nodes: tuple[dict[str, object], ...] = ()
    # And for --pool: pools of a file of pools.
    pools: tuple[dict[str, object], ...] = ()
    # How many times as fast the cloud and the pauses of probes are.
    time_factor: float = 1.0
    # What it needs that `allot up` does not turn on by itself: NAME=true,NAME=true.
    feature_gates: str = "allot"
    # The document that the steps follow. Its commands are for bash with kubectl and curl, its manifests are files of `manifests/NAME/` under the
    # names that it gives them, and it uses the namespace default; so it needs its own cluster.
    document: str = ""
    # Other programs that it needs.
    needs: tuple[str, ...] = ()
    # Variables that the document sets.
    environment: Mapping[str, str] = {}


class Demo(Topic, frozen=True, kw_only=True):
    """A demonstration. Its manifest is `manifests/NAME.yaml`, and its commands use that name; a document has several manifests."""

    steps: tuple[Step, ...]
