"""The known name that a misspelt one means."""

from __future__ import annotations

import pytest

from allot.core.advice.nearest import nearest


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("gpu-larg", ["gpu-large", "gpu-small"], "gpu-large"),
        ("fast-nvme", ["nvme-fast", "standard", "fast-hdd"], "nvme-fast"),
        ("premium_local.ssd", ["local-ssd-premium", "standard"], "local-ssd-premium"),
        ("gpu-a", ["gpu-b", "a-gpu"], "a-gpu"),
        ("fast-nvme", ["standard"], None),
    ],
)
def test_a_name_is_recognized_by_its_letters_or_by_its_words_in_any_order(
    name: str, known: list[str], meant: str | None
) -> None:
    assert nearest(name, known) == meant
