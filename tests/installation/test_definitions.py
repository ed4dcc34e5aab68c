"""When a definition is served."""

from __future__ import annotations

from typing import Any

import pytest

from allot.installation.definitions import _is_served

ESTABLISHED = {"type": "Established", "status": "True"}


@pytest.mark.parametrize(
    ("status", "is_served"),
    [
        (None, False),
        ({}, False),
        # As kube-apiserver sends it in the first moment.
        ({"conditions": None}, False),
        ({"conditions": [{**ESTABLISHED, "status": "False"}]}, False),
        ({"conditions": [{"type": "NamesAccepted", "status": "True"}, ESTABLISHED]}, True),
    ],
)
def test_a_definition_is_served_when_it_is_established(status: Any, is_served: bool) -> None:
    assert _is_served({"status": status}) is is_served
