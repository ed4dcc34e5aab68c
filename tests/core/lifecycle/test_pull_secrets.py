"""Which credentials are for which image."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from allot.core.lifecycle.pull_secrets import Credentials, credentials_for


def _secret(*names: str) -> dict[str, bytes]:
    auths = {name: {"auth": b64encode(f"{name}:secret:1".encode()).decode()} for name in names}
    return {".dockerconfigjson": json.dumps({"auths": auths}).encode()}


@pytest.mark.parametrize(
    ("name", "image", "fits"),
    [
        ("registry.example.com", "registry.example.com/team/app:1", True),
        ("https://registry.example.com/v2/", "registry.example.com/team/app@sha256:0f", True),
        ("registry.example.com", "registry.example.com:5000/app", False),
        ("registry.example.com:5000", "registry.example.com:5000/app", True),
        ("registry.example.com/team", "registry.example.com/team/app", True),
        ("registry.example.com/other", "registry.example.com/team/app", False),
        ("*.example.com", "registry.example.com/app", True),
        ("*.example.com", "a.b.example.com/app", False),
        ("registry*.example.com", "registry7.example.com/app", True),
        ("https://index.docker.io/v1/", "busybox", True),
        ("docker.io", "team/app:1", True),
        ("docker.io", "docker.io/team/app:1", True),
        ("registry.example.com", "busybox", False),
        ("localhost:5000", "localhost:5000/app:1", True),
    ],
)
def test_a_name_fits_an_image(name: str, image: str, fits: bool) -> None:
    found = credentials_for(image, [_secret(name)])
    assert found == ((Credentials(username=name.partition(":")[0], password=found[0].password),) if fits else ())


def test_passwords_may_have_colons_and_longer_paths_come_first() -> None:
    secrets = [_secret("a.example"), _secret("a.example/team", "a.example"), {"data": b"x"}]
    first, second = credentials_for("a.example/team/app", secrets)
    assert (first.username, first.password) == ("a.example/team", "secret:1")
    assert second.username == "a.example"


def test_the_old_form_and_plain_names_are_understood() -> None:
    old = {
        "https://a.example": {"username": "me", "password": "pass", "email": "x"},
        "b.example": {"identitytoken": "t"},
    }
    secret = {".dockercfg": json.dumps(old).encode()}
    assert credentials_for("a.example/app", [secret]) == (Credentials(username="me", password="pass"),)
    assert credentials_for("b.example/app", [secret]) == (Credentials(identity_token="t"),)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"auths":[]}', b'{"auths":{"a.example":1}}', b'{"auths":{"a.example":{"auth":"\xc3\xa4"}}}'],
)
def test_what_is_not_understood_gives_nothing(text: bytes) -> None:
    assert credentials_for("a.example/app", [{".dockerconfigjson": text}]) == ()
