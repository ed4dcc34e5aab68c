"""The search: depth first over claims, requests, alternatives and devices, in upstream's order; the first solution wins.

What keeps it from running away, without changing which solution is first:
- As long as nothing had to be taken back, it is a straight walk.
- After that, devices that look the same to all requests are one choice: where one of them failed, its equals are skipped.
- A situation that failed once (same place in the search, same devices taken up to equality) is not explored again.
- Before a request is explored, `bounds` may prove that the rest cannot be met.
- The number of steps is bounded; running out of them is an answer of its own (`OutOfSteps`).
An error that upstream would meet must not be skipped: a proof never looks past a request that can end in one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allot.core.allocation import bounds
from allot.core.allocation.alike import CandidatesOf, Likeness
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.draft import Draft, Taken
from allot.core.allocation.plan import Leaf, RequestPlan
from allot.core.model.resource_v1 import ALLOCATION_RESULTS_MAX

STEPS_MAX = 100_000


class OutOfSteps(Exception):
    """The search was given up undecided."""


class _Frame:
    """One open decision: which alternative of a request, or which device for one place in a request."""

    __slots__ = ("alternative", "claim", "cursor", "failed", "key", "leaf", "request", "slot", "taken")

    def __init__(self, claim: int, request: int, leaf: Leaf | None, slot: int, start: int, key: object) -> None:
        self.claim = claim
        self.request = request
        # None: the decision is between alternatives.
        self.leaf = leaf
        self.slot = slot
        self.cursor = start
        self.alternative = -1
        self.taken: Taken | None = None
        # Likenesses of devices that did not work out here.
        self.failed: set[object] | None = None
        # The situation in which the request was entered, to be remembered if nothing works out.
        self.key = key


_DONE = "done"
_NO = "no"
# The claim would get more devices than can be stored: only another alternative can help.
_TOO_BIG = "too big"


class Search:
    """One attempt on one node."""

    def __init__(
        self,
        draft: Draft,
        requests: Sequence[Sequence[RequestPlan]],
        candidates: CandidatesOf,
        blocked: Callable[[Leaf], Sequence[DeviceEntry]],
        counts: dict[Leaf, int],
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.draft = draft
        self.requests = requests
        self.candidates = candidates
        self.blocked = blocked
        self.counts = counts
        self.steps = 0
        self.steps_max = steps_max
        self.chosen: list[list[Leaf]] = [[] for _ in requests]
        # Set at the first failure; until then nothing is spent on being careful.
        self._likeness: Likeness | None = None
        self._dead: set[object] = set()

    def run(self) -> bool:
        """True if all claims got their devices, which are then in the draft."""
        frames: list[_Frame] = []
        outcome = self._enter(frames, 0, 0, None, 0, 0)
        while outcome != _DONE:
            if outcome is not None and self._likeness is None and self._hopeless():
                return False
            if outcome == _TOO_BIG:
                self._unwind_to_alternative(frames)
            if not frames:
                return False
            outcome = self._advance(frames)
        for frame in frames:
            if frame.leaf is None:
                self.chosen[frame.claim].append(self.requests[frame.claim][frame.request].leaves[frame.alternative])
            elif frame.slot == 0 and not self.requests[frame.claim][frame.request].prioritized:
                self.chosen[frame.claim].append(frame.leaf)
        return True

    # --- going forward ---

    def _enter(
        self, frames: list[_Frame], claim: int, request: int, leaf: Leaf | None, slot: int, start: int
    ) -> str | None:
        """Open the next decision; an outcome instead if there is none to make."""
        if self.steps >= self.steps_max:
            raise OutOfSteps(f"no answer after {self.steps_max} search steps")
        self.steps += 1
        key: object = None
        while True:
            if leaf is None:
                while claim < len(self.requests) and request >= len(self.requests[claim]):
                    claim, request = claim + 1, 0
                if claim >= len(self.requests):
                    return _DONE
                plan = self.requests[claim][request]
                key = self._situation(claim, request)
                if key is not None and self._is_dead(key, frames, claim, request):
                    return _NO
                if plan.prioritized:
                    frames.append(_Frame(claim, request, None, 0, 0, key))
                    return None
                leaf, slot, start = plan.leaves[0], 0, 0
            count = self.counts[leaf]
            if leaf.all_devices and not count:
                return _NO
            if slot >= count:
                leaf, request = None, request + 1
                continue
            if len(self.draft.choices[claim]) + count - slot > ALLOCATION_RESULTS_MAX:
                return _TOO_BIG
            frames.append(_Frame(claim, request, leaf, slot, start, key))
            return None

    def _advance(self, frames: list[_Frame]) -> str | None:
        """Try the next option of the latest decision."""
        frame = frames[-1]
        if frame.leaf is None:
            return self._next_alternative(frames, frame)
        if frame.taken is not None:
            self._fail(frame)
        if frame.leaf.all_devices:
            return self._the_one_device(frames, frame)
        return self._next_device(frames, frame)

    def _next_alternative(self, frames: list[_Frame], frame: _Frame) -> str | None:
        plan = self.requests[frame.claim][frame.request]
        frame.alternative += 1
        if frame.alternative >= len(plan.leaves):
            self._pop(frames)
            return _NO
        return self._enter(frames, frame.claim, frame.request, plan.leaves[frame.alternative], 0, 0)

    def _the_one_device(self, frames: list[_Frame], frame: _Frame) -> str | None:
        """An "All" request: only the next device of its list will do."""
        leaf = frame.leaf
        assert leaf is not None
        devices, _ = self.candidates(leaf)
        if frame.cursor > frame.slot:
            self._pop(frames)
            return _NO
        entry = devices[frame.slot]
        frame.cursor = frame.slot + 1
        draft = self.draft
        if draft.in_use(entry, leaf, frame.claim) or entry in self.blocked(leaf):
            self._pop(frames)
            return _NO
        frame.taken = draft.take(entry, leaf, frame.claim)
        if frame.taken is None:
            self._pop(frames)
            return _NO
        return self._enter(frames, frame.claim, frame.request, leaf, frame.slot + 1, frame.slot + 1)

    def _next_device(self, frames: list[_Frame], frame: _Frame) -> str | None:
        leaf, claim, draft = frame.leaf, frame.claim, self.draft
        assert leaf is not None
        devices, troubles = self.candidates(leaf)
        likeness, failed = self._likeness, frame.failed
        cursor, end = frame.cursor, len(devices)
        while cursor < end:
            entry = devices[cursor]
            cursor += 1
            if draft.in_use(entry, leaf, claim):
                continue
            if troubles and entry in troubles:
                raise draft.trouble(troubles[entry], leaf, claim)
            if failed and likeness is not None and likeness.of(entry, draft) in failed:
                continue
            taken = draft.take(entry, leaf, claim)
            if taken is None:
                continue
            frame.taken = taken
            frame.cursor = cursor
            return self._enter(frames, claim, frame.request, leaf, frame.slot + 1, cursor)
        self._pop(frames)
        return _NO

    # --- going back ---

    def _fail(self, frame: _Frame) -> None:
        """Take back the choice of a decision and remember what it looked like."""
        taken = frame.taken
        assert taken is not None
        entry = self.draft.choices[frame.claim][-1].entry
        self.draft.undo(taken)
        frame.taken = None
        assert self._likeness is not None
        if frame.failed is None:
            frame.failed = set()
        frame.failed.add(self._likeness.of(entry, self.draft))

    def _pop(self, frames: list[_Frame]) -> None:
        frame = frames.pop()
        if frame.key is not None:
            self._dead.add(frame.key)

    def _unwind_to_alternative(self, frames: list[_Frame]) -> None:
        """Back to the nearest choice between alternatives of the same claim; past the claim it is a plain "no"."""
        if not frames:
            return
        claim = frames[-1].claim
        while frames and frames[-1].claim == claim and frames[-1].leaf is not None:
            frame = frames.pop()
            if frame.taken is not None:
                self.draft.undo(frame.taken)

    # --- proofs ---

    def _situation(self, claim: int, request: int) -> object:
        """What the outcome from here on depends on; None as long as nothing has failed."""
        if self._likeness is None:
            return None
        return (claim, request, len(self.draft.choices[claim]), self._likeness.situation(self.draft, claim))

    def _is_dead(self, key: object, frames: list[_Frame], claim: int, request: int) -> bool:
        if key in self._dead:
            return True
        assert self._likeness is not None
        if frames and not bounds.may_fit(
            self._rest(claim, request), self.draft, self.candidates, self.counts, self._likeness
        ):
            self._dead.add(key)
            return True
        return False

    def _hopeless(self) -> bool:
        """At the first failure: whether the claims cannot be met at all, whatever is chosen."""
        self._likeness = Likeness(self.draft, self.requests, self.candidates)
        fresh = Draft(self.draft.view, self.draft.claims, self.draft.plans, self.draft.features)
        return not bounds.may_fit(self._rest(0, 0), fresh, self.candidates, self.counts, self._likeness)

    def _rest(self, claim: int, request: int) -> list[tuple[int, Leaf]]:
        """Requests from here on of which nothing is open but the devices, up to the first that can end in an error."""
        rest: list[tuple[int, Leaf]] = []
        for position in range(claim, len(self.requests)):
            for plan in self.requests[position][request if position == claim else 0 :]:
                if any(self._may_end_in_error(leaf) for leaf in plan.leaves):
                    return rest
                if not plan.prioritized:
                    rest.append((position, plan.leaves[0]))
        return rest

    def _may_end_in_error(self, leaf: Leaf) -> bool:
        if leaf.all_devices:
            return bool(leaf.constraints)
        return bool(self.candidates(leaf)[1]) or bool(leaf.derived)
