"""The search: depth first over claims, requests, alternatives and devices, in upstream's order; the first solution wins.

What bounds its cost, without changing which solution is first:
- As long as nothing had to be reverted, it is a straight walk.
- After that, devices that look the same to all requests are one choice: where one of them failed, its equals are skipped.
- A situation that failed once (same place in the search, same devices taken up to equality) is not explored again.
- Before a request is explored, `bounds` may prove that the rest cannot be met; before the next device of a request, that
  counters cannot carry the devices that are still missing.
- A failure knows the earlier decisions it conflicts with and jumps back to the latest of them (`ConflictSets`).
- The number of steps is bounded; running out of them is a separate answer (`OutOfSteps`).
An error that upstream would meet must not be skipped: nothing is skipped past a request that can end in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from allot.core.allocation import bounds
from allot.core.allocation.backjumping import ConflictSets
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.draft import Draft, Taken
from allot.core.allocation.plan import Leaf, RequestPlan
from allot.core.allocation.symmetry import CandidatesOf, Symmetry
from allot.core.model.resource_v1 import ALLOCATION_RESULTS_MAX

STEPS_MAX = 50_000
# A search that takes longer than this gets a second opinion: the same requests in an order that finds
# contradictions sooner. It cannot tell which answer is first, only whether there is one.
_SECOND_OPINION_AFTER = 200
_SECOND_OPINION_STEPS_MAX = 20_000
# Proofs that keep failing are tried less often.
_PROOFS_TRIED_ALWAYS = 32
_PROOFS_TRIED_EVERY = 8


class OutOfSteps(Exception):
    """The search was given up undecided."""


class _Frame:
    """One open decision: which alternative of a request, or which device for one place in a request."""

    __slots__ = ("alternative", "claim", "conflicts", "cursor", "failed", "key", "leaf", "request", "slot", "taken")

    def __init__(self, claim: int, request: int, leaf: Leaf | None, slot: int, start: int, key: object) -> None:
        self.claim = claim
        self.request = request
        # None: the decision is between alternatives.
        self.leaf = leaf
        self.slot = slot
        self.cursor = start
        self.alternative = -1
        self.taken: Taken | None = None
        # Symmetry classes that failed here, and the earlier decisions they conflict with.
        self.failed: set[object] | None = None
        self.conflicts = 0
        # The situation in which the request was entered, remembered if nothing works.
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
        counts: Mapping[Leaf, int],
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
        self._frames: list[_Frame] = []
        # Set at the first failure; until then no effort is spent on pruning.
        self._symmetry: Symmetry | None = None
        self._conflicts = ConflictSets(draft)
        self._dead: set[object] = set()
        self._proofs_tried = self._proofs_found = 0
        # Which earlier decisions the latest failure depends on, and where it happened.
        self._culprits = 0
        self._failed_at = (0, 0)
        # A valid answer that may not be the first; None: not computed yet.
        self._second_opinion: Search | None = None
        self._may_ask = True

    def run(self) -> bool:
        """True if all claims got their devices, which are then in the draft."""
        try:
            return self._run()
        except OutOfSteps:
            if self._second_opinion is None:
                raise
            self._adopt(self._second_opinion)
            return True

    def _run(self) -> bool:
        outcome = self._enter(0, 0, None, 0, 0)
        while outcome != _DONE:
            if outcome is not None:
                if self._symmetry is None and self._hopeless():
                    return False
                if outcome == _TOO_BIG:
                    self._unwind_to_alternative()
                else:
                    self._jump_back()
            if not self._frames or self._is_contradicted():
                return False
            outcome = self._advance()
        for frame in self._frames:
            if frame.leaf is None:
                self.chosen[frame.claim].append(self.requests[frame.claim][frame.request].leaves[frame.alternative])
            elif frame.slot == 0 and not self.requests[frame.claim][frame.request].prioritized:
                self.chosen[frame.claim].append(frame.leaf)
        return True

    # --- going forward ---

    def _step(self, cost: int = 1) -> None:
        if self.steps >= self.steps_max:
            raise OutOfSteps(f"no answer after {self.steps_max} search steps")
        self.steps += cost

    def _enter(self, claim: int, request: int, leaf: Leaf | None, slot: int, start: int) -> str | None:
        """Open the next decision; an outcome instead if there is none to make."""
        self._step()
        key: object = None
        while True:
            if leaf is None:
                while claim < len(self.requests) and request >= len(self.requests[claim]):
                    claim, request = claim + 1, 0
                if claim >= len(self.requests):
                    return _DONE
                plan = self.requests[claim][request]
                key = self._situation(claim, request)
                if key is not None and self._is_dead(key, claim, request):
                    return _NO
                if plan.prioritized:
                    self._frames.append(_Frame(claim, request, None, 0, 0, key))
                    return None
                leaf, slot, start = plan.leaves[0], 0, 0
            count = self.counts[leaf]
            if leaf.all_devices and not count:
                return self._no(claim, request, 0)
            if slot >= count:
                leaf, request = None, request + 1
                continue
            if len(self.draft.choices[claim]) + count - slot > ALLOCATION_RESULTS_MAX:
                return _TOO_BIG
            self._frames.append(_Frame(claim, request, leaf, slot, start, key))
            return None

    def _no(self, claim: int, request: int, culprits: int) -> str:
        self._culprits = culprits
        self._failed_at = (claim, request)
        return _NO

    def _advance(self) -> str | None:
        """Try the next option of the latest decision."""
        frame = self._frames[-1]
        if frame.leaf is None:
            return self._next_alternative(frame)
        if frame.taken is not None:
            self._take_back(frame)
        if frame.leaf.all_devices:
            return self._the_one_device(frame)
        if self._symmetry is not None and self._overdraws(frame):
            frame.conflicts |= (1 << (len(self._frames) - 1)) - 1
            return self._give_up()
        return self._next_device(frame)

    def _next_alternative(self, frame: _Frame) -> str | None:
        plan = self.requests[frame.claim][frame.request]
        frame.alternative += 1
        if frame.alternative >= len(plan.leaves):
            return self._give_up()
        return self._enter(frame.claim, frame.request, plan.leaves[frame.alternative], 0, 0)

    def _the_one_device(self, frame: _Frame) -> str | None:
        """An "All" request: only the next device of its list will do."""
        leaf = frame.leaf
        assert leaf is not None
        if frame.cursor > frame.slot:
            return self._give_up()
        frame.cursor = frame.slot + 1
        entry = self.candidates(leaf)[0][frame.slot]
        if entry not in self.blocked(leaf):
            if not self.draft.in_use(entry, leaf, frame.claim):
                frame.taken = self.draft.take(entry, leaf, frame.claim)
                if frame.taken is not None:
                    return self._go_on(frame, entry)
            frame.conflicts |= self._conflicts.of(entry, leaf, frame.claim)
        return self._give_up()

    def _next_device(self, frame: _Frame) -> str | None:
        leaf, claim, draft = frame.leaf, frame.claim, self.draft
        assert leaf is not None
        devices, failures = self.candidates(leaf)
        symmetry, failed = self._symmetry, frame.failed
        cursor, end = frame.cursor, len(devices)
        while cursor < end:
            entry = devices[cursor]
            cursor += 1
            if not draft.in_use(entry, leaf, claim):
                if failures and entry in failures:
                    raise draft.failure(failures[entry], leaf, claim)
                if failed and symmetry is not None and symmetry.of(entry, draft) in failed:
                    continue
                frame.taken = draft.take(entry, leaf, claim)
                if frame.taken is not None:
                    frame.cursor = cursor
                    return self._go_on(frame, entry)
            if symmetry is not None:
                frame.conflicts |= self._conflicts.of(entry, leaf, claim)
        return self._give_up()

    def _go_on(self, frame: _Frame, entry: DeviceEntry) -> str | None:
        assert frame.leaf is not None
        if self._symmetry is not None:
            self._conflicts.took(len(self._frames) - 1, entry, frame.leaf, frame.claim)
        return self._enter(frame.claim, frame.request, frame.leaf, frame.slot + 1, frame.cursor)

    # --- going back ---

    def _take_back(self, frame: _Frame) -> None:
        """Undo the choice of the latest decision and remember its symmetry class."""
        entry = self._undo(frame)
        assert self._symmetry is not None
        if frame.failed is None:
            frame.failed = set()
        frame.failed.add(self._symmetry.of(entry, self.draft))

    def _undo(self, frame: _Frame) -> DeviceEntry:
        assert frame.taken is not None
        assert frame.leaf is not None
        entry = self.draft.choices[frame.claim][-1].entry
        self.draft.undo(frame.taken)
        frame.taken = None
        self._conflicts.gave_back(len(self._frames) - 1, entry, frame.leaf, frame.claim)
        return entry

    def _give_up(self) -> str:
        """The latest decision has no option left."""
        frame = self._frames.pop()
        if frame.key is not None:
            self._dead.add(frame.key)
        culprits = frame.conflicts
        if frame.slot:
            # Only devices after the previous one were tried, so that one conflicts too.
            culprits |= 1 << (len(self._frames) - 1)
        return self._no(frame.claim, frame.request, culprits)

    def _jump_back(self) -> None:
        """Drop decisions that the failure does not depend on, down to the latest one that it does depend on."""
        while self._frames:
            frame, bit = self._frames[-1], 1 << (len(self._frames) - 1)
            if frame.leaf is None or self._culprits & bit or self._is_risky(frame):
                frame.conflicts |= self._culprits & (bit - 1)
                return
            if frame.taken is not None:
                self._undo(frame)
            self._frames.pop()
            if frame.key is not None:
                self._dead.add(frame.key)

    def _is_risky(self, frame: _Frame) -> bool:
        """Whether something between the decision and the failure can end in an error, so that nothing may be skipped."""
        (last_claim, last_request), claim, request = self._failed_at, frame.claim, frame.request
        while (claim, request) <= (last_claim, last_request):
            if request >= len(self.requests[claim]):
                claim, request = claim + 1, 0
                continue
            if any(self._may_end_in_error(leaf) for leaf in self.requests[claim][request].leaves):
                return True
            request += 1
        return False

    def _unwind_to_alternative(self) -> None:
        """Back to the nearest choice between alternatives of the same claim; past the claim it is a plain "no"."""
        if not self._frames:
            return
        claim = self._frames[-1].claim
        while self._frames and self._frames[-1].claim == claim and self._frames[-1].leaf is not None:
            frame = self._frames[-1]
            if frame.taken is not None:
                self._undo(frame)
            self._frames.pop()
        if self._frames:
            self._frames[-1].conflicts |= (1 << (len(self._frames) - 1)) - 1

    # --- a second opinion ---

    def _is_contradicted(self) -> bool:
        """Checked once, when the search takes long: whether the requests cannot be met in any order."""
        if self.steps < _SECOND_OPINION_AFTER or not self._may_ask:
            return False
        self._may_ask = False
        plans = [plan for plans in self.requests for plan in plans]
        if any(plan.prioritized or self._may_end_in_error(plan.leaves[0]) for plan in plans):
            return False
        fresh = Draft(self.draft.view, self.draft.claims, self.draft.plans, self.draft.features)
        reordered = [connected_first(plans, self.counts) for plans in self.requests]
        steps_max = min(_SECOND_OPINION_STEPS_MAX, self.steps_max - self.steps)
        other = Search(fresh, reordered, self.candidates, self.blocked, self.counts, steps_max)
        other._may_ask = False
        try:
            found = other.run()
        except OutOfSteps:
            found = None
        self.steps += other.steps
        if found:
            self._second_opinion = other
        return found is False

    def _adopt(self, other: Search) -> None:
        """Adopt the other search's answer, in the order of this one."""
        self.chosen = [[plan.leaves[0] for plan in plans] for plans in self.requests]
        for claim, leaves in enumerate(self.chosen):
            order = {leaf: position for position, leaf in enumerate(leaves)}
            other.draft.choices[claim].sort(key=lambda choice: order[choice.leaf])
        self.draft = other.draft

    # --- proofs ---

    def _situation(self, claim: int, request: int) -> object:
        """What the outcome from here on depends on; None as long as nothing has failed."""
        if self._symmetry is None:
            return None
        return claim, request, len(self.draft.choices[claim]), self._symmetry.situation(self.draft, claim)

    def _is_dead(self, key: object, claim: int, request: int) -> bool:
        if key in self._dead:
            # The decisions that led to it before are no longer known: it could be all of them.
            self._no(claim, request, (1 << len(self._frames)) - 1)
            return True
        self._proofs_tried += 1
        rarely = (
            self._proofs_tried > _PROOFS_TRIED_ALWAYS and self._proofs_found * _PROOFS_TRIED_EVERY < self._proofs_tried
        )
        if not self._frames or (rarely and self._proofs_tried % _PROOFS_TRIED_EVERY):
            return False
        rest = self._rest(claim, request)
        # A proof takes about one step for every four requests that it considers.
        self._step(len(rest) // 4 + 1)
        assert self._symmetry is not None
        involved = bounds.why_not(rest, self.draft, self.candidates, self.counts, self._symmetry)
        if involved is None:
            return False
        self._proofs_found += 1
        self._dead.add(key)
        culprits = 0
        for position, leaf in involved:
            culprits |= self._conflicts.of_all(self.candidates(leaf)[0], leaf, position)
        self._no(claim, request, culprits)
        return True

    def _overdraws(self, frame: _Frame) -> bool:
        """Whether counters cannot carry all devices that the request still lacks, whichever are chosen."""
        draft, leaf = self.draft, frame.leaf
        assert leaf is not None
        needed = self.counts[leaf] - frame.slot
        if needed < 2 or not draft.view.counters or self._may_end_in_error(leaf):
            return False
        self._step()
        left = [e for e in self.candidates(leaf)[0][frame.cursor :] if not draft.in_use(e, leaf, frame.claim)]
        return bounds.overdraws(left, needed, draft)

    def _hopeless(self) -> bool:
        """At the first failure: whether the claims cannot be met at all, whatever is chosen."""
        symmetry = Symmetry(self.draft, self.requests, self.candidates)
        fresh = Draft(self.draft.view, self.draft.claims, self.draft.plans, self.draft.features)
        if bounds.why_not(self._rest(0, 0), fresh, self.candidates, self.counts, symmetry) is not None:
            return True
        # From now on, record which decision took what, including those made so far.
        self._symmetry = symmetry
        in_order = (choice for choices in self.draft.choices for choice in choices)
        for depth, frame in enumerate(self._frames):
            if frame.taken is not None and frame.leaf is not None:
                self._conflicts.took(depth, next(in_order).entry, frame.leaf, frame.claim)
        # The failure came before recording began: it could be due to any decision.
        self._culprits = (1 << len(self._frames)) - 1
        return False

    def _rest(self, claim: int, request: int) -> list[tuple[int, Leaf]]:
        """Requests from here on for which only the devices are undecided, up to the first that can end in an error."""
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


def connected_first(plans: Sequence[RequestPlan], counts: Mapping[Leaf, int]) -> list[RequestPlan]:
    """Requests in an order in which those that share constraints follow each other, the most entangled first."""
    left = list(plans)
    ordered: list[RequestPlan] = []
    known: set[int] = set()
    while left:

        def entangled(plan: RequestPlan) -> tuple[int, int, int]:
            constraints = plan.leaves[0].constraints
            return len(known.intersection(constraints)), len(constraints), counts[plan.leaves[0]]

        best = max(left, key=entangled)
        left.remove(best)
        ordered.append(best)
        known.update(best.leaves[0].constraints)
    return ordered
