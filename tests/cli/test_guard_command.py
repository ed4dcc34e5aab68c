"""`allot guard`: what it prints and what it refuses."""

from __future__ import annotations

import pytest

from allot.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--webhook-service=x"], "expected NAMESPACE/NAME or NAMESPACE/NAME:PORT, got 'x'"),
        (["--webhook-service=a/b:0"], "expected NAMESPACE/NAME or NAMESPACE/NAME:PORT, got 'a/b:0'"),
        (["--webhook-url=http://guard"], "expected https://HOST:PORT/validate, got 'http://guard'"),
        (["--webhook-url=https://guard/other"], "expected https://HOST:PORT/validate"),
        (["--webhook-url=https://g", "--webhook-service=a/b"], "exclude each other"),
        (["--webhook-timeout=31s"], "expected whole seconds from 1s to 30s, got 31s"),
        (["--webhook-timeout=1500ms"], "expected whole seconds from 1s to 30s, got 1.5s"),
        (["--write-timeout=1s"], "expected at least the webhook's timeout of 5s, got 1s"),
        (["--serving-certificate-validity=1s"], "expected at least 5s, got 1s"),
        ([f"--client-ca-file={__file__}"], "test_guard_command.py: expected certificates as PEM"),
        (["--print-webhook-configuration"], "needs --webhook-service or --webhook-url"),
        (["--client-ca-file=/does/not/exist"], "/does/not/exist: no such file or directory"),
    ],
)
def test_options_that_cannot_work_are_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["guard", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_the_configuration_is_printed_as_the_options_say(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--webhook-url=https://guard.example:9443", "--failure-policy=Ignore", "--webhook-timeout=2s"]
    assert run(["guard", "--print-webhook-configuration", *options]) == 0
    printed = capsys.readouterr().out
    assert "url: https://guard.example:9443/validate" in printed
    assert "failurePolicy: Ignore" in printed
    assert "timeoutSeconds: 2" in printed
