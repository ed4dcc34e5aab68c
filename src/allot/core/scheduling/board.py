"""Results that are kept: for equal pods, what every node answered, brought up to date for the nodes that changed.

A `Board` holds, for one profile, each node's refusal or score as far as the node alone decides that. A `Ranking` adds the
devices and keeps the nodes that are left in the order in which they are to be tried. Scores that are relative to the best
node (TaintToleration, NodeAffinity, prioritized lists) are worked out anew for all nodes only when the best one changes.

What depends on pods of other nodes (affinity, spreading) is not in here: `decide` asks that per pod.

Order among equal scores: the node that has waited longest for a pod first, then the one that joined first. So equal nodes
fill evenly, and the same history gives the same answer.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from allot.core.scheduling.nodeinfo import NodeInfo
from allot.core.scheduling.plugins import (
    balanced_allocation,
    image_locality,
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.questions import DeviceQuestion
from allot.core.scheduling.settings import Policy, Settings
from allot.core.scheduling.status import Status, Verdict

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster

_BOARDS_MAX = 128
_RANKINGS_MAX = 256

# Points that are relative to the best node: unwelcome taints, wishes for nodes, rank of the devices.
Raw = tuple[int, int, int]
_NO_POINTS: Raw = (0, 0, 0)
# Score negated, when the node was last taken, ordinal, name: the smallest is the best.
Item = tuple[int, int, int, str]


class Entry:
    """What one node answered to one profile."""

    __slots__ = ("image", "node", "score", "static", "status", "unwelcome", "wishes")

    def __init__(self) -> None:
        # The node object that the static part was worked out for.
        self.node: object = None
        self.static: Status | None = None
        self.status: Status | None = None
        self.unwelcome = 0
        self.wishes = 0
        self.image = 0
        # Weighted sum of the scores that are not relative to other nodes.
        self.score = 0


class Board:
    """Each node's answer to one profile, as far as the node alone decides."""

    def __init__(self, cluster: Cluster, profile: Profile, settings: Settings) -> None:
        self._cluster = cluster
        self.profile = profile
        self.settings = settings
        self.entries: dict[str, Entry] = {}
        self._fit = node_resources_fit.scorer(settings, cluster.devices)
        self._position = self._device_position = self._volume_version = -1
        weights = settings.weights
        self._asks_images = bool(weights.image_locality)
        self._balances = bool(weights.balanced_allocation) and any(
            balanced_allocation.wanted(profile, resource.name) for resource in settings.balanced_resources
        )
        self._has_volumes = bool(profile.volume_claims or profile.disks)

    def refresh(self) -> None:
        """Catch up with what changed."""
        cluster = self._cluster
        changed = self._changed()
        if changed is None:
            self.entries = {name: self._evaluated(info, self.entries.get(name)) for name, info in cluster.nodes.items()}
            return
        for name in changed:
            info = cluster.nodes.get(name)
            if info is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = self._evaluated(info, self.entries.get(name))

    def entry(self, info: NodeInfo) -> Entry:
        """What a node answered; asked now if the board does not know it."""
        entry = self.entries.get(info.name)
        if entry is None:
            entry = self.entries[info.name] = self._evaluated(info, None)
        return entry

    def _changed(self) -> set[str] | None:
        """The nodes that have to be looked at again; None: all."""
        cluster = self._cluster
        changed = cluster.changes.since(self._position) if self._position >= 0 else None
        self._position = cluster.changes.position
        if self.profile.scalars:
            # Devices may stand behind the resources.
            position, self._device_position = self._device_position, cluster.device_changes.position
            devices = cluster.device_changes.since(position) if position >= 0 else None
            changed = None if changed is None or devices is None else changed | devices
        if self._has_volumes:
            version, self._volume_version = self._volume_version, cluster.volumes.version
            if version != self._volume_version:
                changed = None
        return changed

    def _evaluated(self, info: NodeInfo, entry: Entry | None) -> Entry:
        self._cluster.boards.evaluations += 1
        if entry is None:
            entry = Entry()
        if entry.node is not info.node:
            self._evaluate_static(info, entry)
        profile = self.profile
        status = entry.static
        if status is None:
            status = local_refusal(self._cluster, profile, info, self.settings)
        entry.status = status
        if status is None:
            entry.score = self._score(info)
        return entry

    def _evaluate_static(self, info: NodeInfo, entry: Entry) -> None:
        entry.node = info.node
        profile = self.profile
        entry.static = static_refusal(profile, info, self.settings)
        entry.unwelcome = taint_toleration.unwelcome(profile, info) if info.taints else 0
        entry.wishes = node_affinity.wishes(profile, info) if profile.preferred_nodes else 0

    def _score(self, info: NodeInfo) -> int:
        profile, settings = self.profile, self.settings
        weights = settings.weights
        score = self._fit(profile, info) * weights.node_resources_fit
        if self._balances:
            points = balanced_allocation.score(profile, info, settings.balanced_resources, self._cluster.devices)
            score += points * weights.balanced_allocation
        if self._asks_images and info.images:
            cluster = self._cluster
            points = image_locality.score(profile, info, cluster.image_spread, len(cluster.nodes))
            score += points * weights.image_locality
        return score


def static_refusal(profile: Profile, info: NodeInfo, settings: Settings) -> Status | None:
    """Why a node will not do, as far as only the node object decides that."""
    disabled = settings.disabled_filters
    if profile.node_names is not None and info.name not in profile.node_names:
        return node_affinity.NOT_NAMED
    if info.unschedulable and node_unschedulable.NAME not in disabled:
        status = node_unschedulable.refusal(profile, info)
        if status is not None:
            return status
    if info.taints and taint_toleration.NAME not in disabled:
        status = taint_toleration.refusal(profile, info)
        if status is not None:
            return status
    return None if node_affinity.NAME in disabled else node_affinity.refusal(profile, info)


def local_refusal(cluster: Cluster, profile: Profile, info: NodeInfo, settings: Settings) -> Status | None:
    """Why a node will not do with the pods that are on it, beyond `static_refusal`."""
    disabled = settings.disabled_filters
    if profile.host_ports and node_ports.NAME not in disabled:
        status = node_ports.refusal(profile, info)
        if status is not None:
            return status
    if node_resources_fit.NAME not in disabled:
        status = node_resources_fit.refusal(profile, info, settings, cluster.devices)
        if status is not None:
            return status
    if profile.volume_claims or profile.disks:
        return cluster.volumes.refusal(profile, info, disabled)
    return None


class Ranking:
    """The nodes that a kind of pod can have, best first; and why it cannot have the others."""

    def __init__(self, cluster: Cluster, board: Board) -> None:
        self._cluster = cluster
        self.board = board
        self._live: dict[str, Item] = {}
        self._raw: dict[str, Raw] = {}
        self._heap: list[Item] = []
        self._tops = _NO_POINTS
        self._position = self._device_position = -1
        self._volume_version = -1
        self.refusals: dict[str, Status] = {}
        # How many nodes refused in the same words.
        self.histogram: dict[Status, int] = {}
        self._errors: dict[str, Status] = {}

    def refresh(self, question: DeviceQuestion | None) -> None:
        """Catch up with what changed. The question must be equal to the ones before."""
        board, cluster = self.board, self._cluster
        board.refresh()
        changed = self._changed(question is not None)
        if changed is None:
            self._live, self._raw, self._heap = {}, {}, []
            self.refusals, self.histogram, self._errors = {}, {}, {}
            changed = set(cluster.nodes)
        for name in changed:
            self._update(name, question)
        tops = self._find_tops() if self._raw or self._tops != _NO_POINTS else _NO_POINTS
        if tops != self._tops or len(self._heap) > 4 * len(self._live) + 64:
            self._tops = tops
            self._rank_again(question)

    def _changed(self, has_devices: bool) -> set[str] | None:
        cluster = self._cluster
        position, self._position = self._position, cluster.changes.position
        changed = cluster.changes.since(position) if position >= 0 else None
        if has_devices or self.board.profile.scalars:
            position, self._device_position = self._device_position, cluster.device_changes.position
            devices = cluster.device_changes.since(position) if position >= 0 else None
            changed = None if changed is None or devices is None else changed | devices
        version, self._volume_version = self._volume_version, cluster.volumes.version
        if version != self._volume_version and self.board.profile.volume_claims:
            changed = None
        return changed

    def _update(self, name: str, question: DeviceQuestion | None) -> None:
        self._live.pop(name, None)
        self._raw.pop(name, None)
        refused = self.refusals.pop(name, None)
        if refused is not None:
            self._uncount(name, refused)
        info = self._cluster.nodes.get(name)
        if info is None:
            return
        entry = self.board.entries[name]
        status = entry.status
        rank = 0
        if status is None and question is not None:
            self._cluster.boards.device_questions += 1
            if question.needs_exact:
                status = question.exact(info)
                if status is None:
                    rank = question.rank(info)
            else:
                status = question.quick(info)
        if status is not None:
            self.refuse(name, status)
            return
        if rank or entry.unwelcome or entry.wishes:
            self._raw[name] = (entry.unwelcome, entry.wishes, rank)
        item = self._live[name] = self._item(info, question)
        heappush(self._heap, item)

    def _item(self, info: NodeInfo, question: DeviceQuestion | None) -> Item:
        settings = self.board.settings
        if settings.policy is Policy.FIRST_FIT:
            return 0, 0, info.ordinal, info.name
        score = self.board.entries[info.name].score
        if self._tops != _NO_POINTS:
            score += relative_score(self._raw.get(info.name, _NO_POINTS), self._tops, settings)
        if question is not None and settings.policy:
            score += policy_score(question, info, settings)
        return -score, info.taken_at, info.ordinal, info.name

    def _find_tops(self) -> Raw:
        points = self._raw.values()
        return (
            max((raw[0] for raw in points), default=0),
            max((raw[1] for raw in points), default=0),
            max((raw[2] for raw in points), default=0),
        )

    def _rank_again(self, question: DeviceQuestion | None) -> None:
        nodes = self._cluster.nodes
        self._live = {name: self._item(nodes[name], question) for name in self._live}
        self._heap = list(self._live.values())
        heapify(self._heap)

    def best(self) -> str | None:
        """The node to be tried next."""
        heap, live = self._heap, self._live
        while heap:
            item = heap[0]
            if live.get(item[3]) is item:
                return item[3]
            heappop(heap)
        return None

    def refuse(self, name: str, status: Status) -> None:
        """A node turned out not to do; that holds until it changes."""
        self._live.pop(name, None)
        self.refusals[name] = status
        self.histogram[status] = self.histogram.get(status, 0) + 1
        if status.verdict is Verdict.ERROR:
            self._errors[name] = status

    def _uncount(self, name: str, status: Status) -> None:
        left = self.histogram[status] - 1
        if left:
            self.histogram[status] = left
        else:
            del self.histogram[status]
        self._errors.pop(name, None)

    def set_aside(self, name: str) -> Item:
        """Leave a node out for this once; `put_back` undoes it."""
        return self._live.pop(name)

    def put_back(self, item: Item) -> None:
        """Undo `set_aside`."""
        self._live[item[3]] = item
        heappush(self._heap, item)

    @property
    def failed(self) -> NodeInfo | None:
        """A node whose error makes the whole attempt fail: the one that joined first."""
        if not self._errors:
            return None
        return min((self._cluster.nodes[name] for name in self._errors), key=lambda info: info.ordinal)


def relative_score(raw: Raw, tops: Raw, settings: Settings) -> int:
    """Weighted scores of 0 to 100 of what is relative to the best node."""
    weights = settings.weights
    score = 0
    if tops[0]:
        score += (100 - raw[0] * 100 // tops[0]) * weights.taint_toleration
    if tops[1]:
        score += raw[1] * 100 // tops[1] * weights.node_affinity
    if tops[2]:
        score += raw[2] * 100 // tops[2] * weights.dynamic_resources
    return score


def policy_score(question: DeviceQuestion, info: NodeInfo, settings: Settings) -> int:
    """The weighted score of a policy that packs or spreads devices."""
    held, there = question.occupancy(info)
    points = held * 100 // there if there else 0
    if settings.policy is Policy.SPREAD:
        points = 100 - points
    return points * settings.weights.device_policy


class Boards:
    """Boards and rankings that are kept; the least recently used is dropped first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._boards: dict[tuple[int, bytes], Board] = {}
        self._rankings: dict[tuple[int, bytes, Hashable], Ranking] = {}
        # Work done, for tests and benchmarks.
        self.evaluations = 0
        self.device_questions = 0

    def board(self, profile: Profile, settings: Settings) -> Board:
        """The board of a profile, not yet refreshed."""
        key = (id(settings), profile.key)
        board = self._boards.pop(key, None)
        if board is None:
            if len(self._boards) >= _BOARDS_MAX:
                del self._boards[next(iter(self._boards))]
            board = Board(self._cluster, profile, settings)
        self._boards[key] = board
        return board

    def ranking(self, profile: Profile, settings: Settings, question_key: Hashable) -> Ranking:
        """The ranking of a profile and of questions with this key, not yet refreshed."""
        key = (id(settings), profile.key, question_key)
        ranking = self._rankings.pop(key, None)
        board = self.board(profile, settings)
        if ranking is None or ranking.board is not board:
            if len(self._rankings) >= _RANKINGS_MAX:
                del self._rankings[next(iter(self._rankings))]
            ranking = Ranking(self._cluster, board)
        self._rankings[key] = ranking
        return ranking
