"""Phrases that all explanations share."""

import pytest

from allot.core.advice.explain.wording import of_several


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("has taint x", "have taint x"),
        ("is pending because it asks for x", "are pending because they ask for x"),
        ("is pending because its claim gpu needs x", "are pending because their claim gpu needs x"),
        ("waits for node a", "wait for node a"),
        ("its free devices do not fit", "its free devices do not fit"),
    ],
)
def test_a_sentence_about_several_is_in_the_plural(one: str, several: str) -> None:
    assert of_several(one) == several
