"""What a demonstration is made of, as data."""

from __future__ import annotations

import msgspec


class Say(msgspec.Struct, frozen=True, tag=True):
    """A sentence to the audience."""

    text: str


class Run(msgspec.Struct, frozen=True, tag=True):
    """A command as a user would type it, and what to look at in its output."""

    command: str
    # Lines of the output that are shown; 0 shows all.
    lines_max: int = 0
    # The exit code that the command has to end with.
    code: int = 0


class Show(msgspec.Struct, frozen=True, tag=True):
    """An object of the manifest, by kind and name: what the demonstration is about."""

    kind: str
    name: str


class Wait(msgspec.Struct, frozen=True, tag=True):
    """Until pods are in a state: Running, Succeeded, Failed, Unschedulable, or Gone."""

    pods: tuple[str, ...]
    state: str


Step = Say | Run | Show | Wait


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """A demonstration. Its manifest is `manifests/NAME.yaml`, which its commands call by that name."""

    name: str
    title: str
    # What `allot up` is given for --node: the content of a file of nodes.
    nodes: tuple[dict[str, object], ...]
    # What it needs that is off by default: NAME=true,NAME=true.
    feature_gates: str = "default"
    namespace: str
    steps: tuple[Step, ...]
