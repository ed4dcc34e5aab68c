"""Policies: which of the valid answers is chosen. A new one is a module with a `Policy` and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.allocation.policies.first_fit import FirstFit
from allot.core.allocation.policies.pack import Pack
from allot.core.allocation.policies.policy import Policy

FIRST_FIT: Policy = FirstFit()
PACK: Policy = Pack()
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (FIRST_FIT, PACK)}

__all__ = ["FIRST_FIT", "PACK", "POLICIES", "Policy"]
