"""PEM and what is in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allot.core.validation.builtin.certificates import (
    certificate_problem,
    check_signer_name,
    check_trust_bundle,
    pem_blocks,
    signing_request_problem,
)
from security.kind_cases import certificate, pem_block, signing_request


def test_blocks_are_found_between_anything_else() -> None:
    text = "a\n" + pem_block("A", b"one") + "-----BEGIN B-----\nnot base64!\n-----END B-----\n" + pem_block("C", b"two")
    assert [(block.type, block.der, block.has_headers) for block in pem_blocks(text)] == [
        ("A", b"one", False),
        ("C", b"two", False),
    ]
    assert [block.has_headers for block in pem_blocks(pem_block("A", b"one", "Who: me\n\n"))] == [True]


def test_a_beginning_without_its_end_does_not_hide_the_next_block() -> None:
    assert [block.type for block in pem_blocks("-----BEGIN A-----\nAAAA\n" + pem_block("B", b"x"))] == ["B"]
    assert [
        block.type for block in pem_blocks("-----BEGIN A-----\nAAAA\n-----END C-----\n" + pem_block("B", b"x"))
    ] == ["B"]


@given(st.lists(st.sampled_from(["-----BEGIN A-----", "-----END A-----", "AAAA", "a: b", "", "-----BEGIN B-----"])))
def test_any_lines_get_an_answer(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert len(list(pem_blocks(text))) <= lines.count("-----END A-----")
    check_trust_bundle(text, "spec.trustBundle")


def test_of_very_many_bad_blocks_the_first_hundred_are_told() -> None:
    assert len(check_trust_bundle("-----BEGIN A-----\n-----END A-----\n" * 20_000, "spec.trustBundle")) == 100


def test_a_request_is_signed_with_its_own_key() -> None:
    assert signing_request_problem(signing_request().decode()) == ""
    assert "does not fit its key" in signing_request_problem(signing_request(forged=True).decode())
    assert signing_request_problem(certificate()) == "PEM block type must be CERTIFICATE REQUEST"


def test_a_chain_consists_of_certificates() -> None:
    assert certificate_problem(certificate("a") + certificate("b", ca=False)) == ""
    assert certificate_problem(certificate("a") + pem_block("PRIVATE KEY", b"x")) == (
        'only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"'
    )
    assert certificate_problem("") == "must contain at least one CERTIFICATE PEM block"


def test_a_signer_has_a_domain_and_a_path() -> None:
    assert check_signer_name("example.com/signer.of-x", "p") == []
    (found,) = check_signer_name("Example.com/signer", "p")
    assert found.error.message.startswith(
        'Invalid value: "Example.com": validating label "Example": a lowercase RFC 1123'
    )
