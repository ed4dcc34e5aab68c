"""Who asks, as a front proxy says it: what goes out comes in as the same, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.access.attributes import User
from allot.core.access.front_proxy import UnsendableIdentity, remote_headers, remote_user

_TEXT = st.text(max_size=20)
_USERS = st.builds(
    User,
    st.text(min_size=1, max_size=20),
    _TEXT,
    st.lists(_TEXT, max_size=4).map(tuple),
    st.dictionaries(
        st.text(st.characters(codec="ascii"), min_size=1, max_size=12),
        st.lists(_TEXT, max_size=3).map(tuple),
        max_size=3,
    ),
)


@given(_USERS)
def test_a_user_arrives_as_it_was_sent_or_not_at_all(user: User) -> None:
    try:
        headers = remote_headers(user)
    except UnsendableIdentity:
        return
    # As every HTTP parser reads it.
    for name, value in headers:
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set(' :()<>@,;\\"/[]?={}')
        assert value == value.strip(" \t")
        assert not set(value) & set("\r\n\0")
    found = remote_user(headers)
    assert found is not None
    assert (found.name, found.uid) == (user.name, user.uid)
    groups = tuple(filter(None, user.groups))
    assert found.groups[: len(groups)] == groups
    assert set(found.extra) == {key.lower() for key, values in user.extra.items() if values}


@pytest.mark.parametrize("name", ["a\nX-Remote-Group: system:masters", "admin ", "\tadmin", "a\x00", "a\r"])
def test_names_that_could_be_misread_are_not_sent(name: str) -> None:
    for user in (User(name), User("a", groups=(name,)), User("a", extra={"k": (name,)})):
        with pytest.raises(UnsendableIdentity):
            remote_headers(user)


def test_names_of_extras_are_escaped() -> None:
    headers = remote_headers(User("a", extra={"example.com/Scope %": ("x",)}))
    assert headers[-1] == ("X-Remote-Extra-example.com%2FScope%20%25", "x")
    assert remote_user(headers) == User("a", groups=("system:authenticated",), extra={"example.com/scope %": ("x",)})


def test_without_a_name_there_is_no_user() -> None:
    assert remote_user([("X-Remote-Group", "system:masters"), ("X-Remote-User", "")]) is None
