"""What a demonstration is made of, as data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"text": "say"}):
    """A sentence to the audience."""

    text: str


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"command": "run"}):
    """A command as a user would type it, and what to look at in its output."""

    command: str
    # Lines of the output that are shown; 0 shows all.
    lines_max: int = 0
    # A regular expression for the line with which the part begins that is shown.
    starts_at: str = ""
    # The exit code that the command has to end with.
    code: int = 0
    # A regular expression for something that the output has to show; the command is run again until it does.
    shows: str = ""


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"kind": "show"}):
    """An object of the manifest, by kind and name: what the demonstration is about."""

    kind: str
    name: str


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"pods": "wait"}):
    """Until pods are in a state: Running, Succeeded, Failed, Unschedulable, or Gone."""

    pods: tuple[str, ...]
    state: str


Step = Say | Run | Show | Wait
# By the word that a step begins with in catalogue.yaml.
STEPS: Mapping[str, type[Step]] = {"say": Say, "run": Run, "show": Show, "wait": Wait}


class Topic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a demonstration is about, and on which cluster it is played."""

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
    # The document whose steps these are. Its commands are for a shell (bash) with kubectl and curl, its manifests are files of `manifests/NAME/` under the
    # names that it gives them, and it uses the namespace default; so it is played on a cluster of its own only.
    document: str = ""
    # Programs that it needs besides.
    needs: tuple[str, ...] = ()
    # Variables that the document sets.
    environment: Mapping[str, str] = {}


class Demo(Topic, frozen=True, kw_only=True):
    """A demonstration. Its manifest is `manifests/NAME.yaml`, which its commands call by that name; that of a document has several."""

    steps: tuple[Step, ...]
