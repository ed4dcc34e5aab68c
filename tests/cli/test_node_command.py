"""Options of `allot node` that cannot be."""

from __future__ import annotations

import pytest

from cli.command import allot


@pytest.mark.parametrize(
    "given", ["call", "call=", "call=0", "call=-1", "call=0.001", "call=1e3", "wait=1", "call=1;wipe=1"]
)
def test_a_period_that_is_none_is_refused_with_those_there_are(given: str) -> None:
    result = allot("node", "--dra-periods", given)
    assert result.code == 2
    assert "is not a period such as call=45; there are call, registration, " in result.stderr
