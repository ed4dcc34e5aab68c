"""Loads what lint checks against: a live cluster, dumps, hardware profiles, and allot's drivers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from allot.cli.errors import Unreadable
from allot.cli.linting.config_checks import CONFIG_CHECKS
from allot.cli.output import TERMINAL
from allot.cli.snapshots import need, read_snapshot
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.snapshot import KINDS, Snapshot
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.compute_classes import ComputeClass
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PriorityClass
from allot.devices.catalogue import UnknownProfile
from allot.devices.node_files import NodeSet, hint_for
from allot.devices.node_templates import objects_of
from allot.devices.profiles.machines import machine_names
from allot.reading.snapshots import SnapshotSource, snapshot_from_files

LIVE = "live"
# Kinds without which lint would report existing objects as unknown, and optional ones.
_NEEDED = (core_v1.Node, api.DeviceClass, api.ResourceSlice, api.ResourceClaim, api.ResourceClaimTemplate)
_USED = (*_NEEDED, core_v1.Namespace, api.DeviceTaintRule, PriorityClass, ComputeClass)
_KINDS = tuple(msgspec.structs.replace(kind, required=kind.type in _NEEDED) for kind in KINDS if kind.type in _USED)


class KnowledgeSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where knowledge comes from. against: `live`, or files and directories of dumps."""

    against: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str = ""


def read_knowledge(source: KnowledgeSource) -> Knowledge:
    """Everything that the options name."""
    objects: tuple[APIStruct, ...] = ()
    dumps = tuple(each for each in source.against if each != LIVE)
    if dumps:
        objects += snapshot_from_files(dumps, TERMINAL).objects
    if LIVE in source.against:
        objects += _live(SnapshotSource(kubeconfig=source.kubeconfig, context=source.context)).objects
    return Knowledge(
        cluster=Snapshot(objects) if source.against else None,
        examples=profiles_snapshot(source.profiles) if source.profiles else None,
        config_checks=CONFIG_CHECKS,
        machines=machine_names(),
    )


def live_knowledge(source: SnapshotSource) -> Knowledge:
    """The objects of a cluster."""
    return Knowledge(cluster=_live(source), config_checks=CONFIG_CHECKS, machines=machine_names())


def _live(source: SnapshotSource) -> Snapshot:
    snapshot = read_snapshot(source, _KINDS)
    need(snapshot, *_NEEDED)
    return snapshot


def profiles_snapshot(names: Iterable[str]) -> Snapshot:
    """One node of each profile with everything that its drivers publish."""
    objects: list[APIStruct] = []
    for name in dict.fromkeys(names):
        try:
            objects += objects_of(NodeSet(profile=name))
        except UnknownProfile as error:
            raise Unreadable(f"--profile {error}", hint_for(error)) from None
    return Snapshot(tuple(objects))
