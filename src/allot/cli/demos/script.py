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
    # The exit code that the command has to end with.
    code: int = 0


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
    nodes: tuple[dict[str, object], ...]
    # What it needs that `allot up` does not turn on by itself: NAME=true,NAME=true.
    feature_gates: str = "allot"


class Demo(Topic, frozen=True, kw_only=True):
    """A demonstration. Its manifest is `manifests/NAME.yaml`, which its commands call by that name."""

    steps: tuple[Step, ...]
