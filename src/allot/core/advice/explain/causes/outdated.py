"""Claims made from a template that has been replaced since: a claim keeps the spec that it was made with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, delete_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.trial import pod_subject, would_help
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.claim_owners import claim_name, is_made_for
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api


class _Outdated(NamedTuple):
    claim: api.ResourceClaim
    template: api.ResourceClaimTemplate

    def note(self, text: str) -> str:
        """Where the claim has its spec from. text: what is said before; of a claim that it names, it need not be said again which."""
        name = f"claim {full_name(self.claim)}"
        made = self.claim.metadata.creation_timestamp
        return (
            f"{'the claim' if name in text else name} was made at {made} from an earlier ResourceClaimTemplate {full_name(self.template)}, and "
            "keeps its spec"
        )


def with_outdated_claims(what_if: WhatIfCluster, pod: core_v1.Pod, found: Diagnosis) -> Diagnosis:
    """Why a pod waits, and that its claims would be others if they were made today. found: the cause with the claims that it has."""
    old = list(_outdated(what_if, pod))
    if not old:
        return found
    text = found.text
    for each in old:
        # What the template asks for today may be right.
        text = text.replace(f"ResourceClaimTemplate {full_name(each.template)}", f"claim {full_name(each.claim)}")
    text = "; ".join((text, *(each.note(text if len(old) == 1 else "") for each in old)))
    again = _made_again(pod, old)
    outcome = would_help(what_if, pod_subject(pod), again.patches)
    if outcome is not None and outcome.schedulable:
        return replace(found, text=text, candidates=(again,), advice=())
    return replace(found, text=text, candidates=(again, *found.candidates))


def _outdated(what_if: WhatIfCluster, pod: core_v1.Pod) -> Iterator[_Outdated]:
    """The pod's own claims without devices whose templates have been created again since, as others: a template's spec is immutable."""
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_template_name
        template = what_if.get(api.ResourceClaimTemplate, name, namespace) if name is not None else None
        claim = what_if.get(api.ResourceClaim, claim_name(pod, entry), namespace)
        if template is None or claim is None or claim.status.allocation is not None:
            continue
        made, again = claim.metadata.creation_timestamp, template.metadata.creation_timestamp
        newer = bool(made and again and made < again)
        if newer and is_made_for(pod, claim, accepts_group=False) and claim.spec != template.spec.spec:
            yield _Outdated(claim, template)


def _made_again(pod: core_v1.Pod, old: list[_Outdated]) -> Candidate:
    """New claims from today's templates."""
    maker = controller_of(pod)
    claims = "claim is" if len(old) == 1 else "claims are"
    today = "it is today" if len(old) == 1 else "they are today"
    made = (
        f"{claims} made from {named('ResourceClaimTemplate', [each.template.metadata.name for each in old])} as {today}"
    )
    text = f"recreate pod {pod.metadata.name}, so that its {made}"
    if maker is not None:
        text = f"delete pod {pod.metadata.name}: {maker.kind} {maker.name} makes another one, whose {made}"
    patches = [delete_of("ResourceClaim", each.claim.metadata.name, each.claim.metadata.namespace) for each in old]
    return Candidate(rank=Rank.FIX, text=text, patches=tuple(patches))
