"""The subset of Go's templates: what it means, and that the rest is refused."""

from __future__ import annotations

from typing import Any

import pytest

from allot.installation.go_templates import Failed, TemplateError, Templates

VALUES: dict[str, Any] = {
    "Values": {
        "name": "x",
        "on": True,
        "off": False,
        "zero": 0,
        "items": ["a", "b"],
        "map": {"b": 2, "a": 1},
        "none": None,
    },
    "Files": {"Get": lambda path: f"<{path}>"},
}


def rendered(text: str, **files: str) -> str:
    return Templates({"templates/t": text, **files}).render("templates/t", VALUES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {{ .Values.name }} b", "a x b"),
        ("a\n  {{- .Values.name -}}\n  b", "axb"),
        ("{{/* nothing */}}a", "a"),
        ("{{- /* nothing */ -}}\n a", "a"),
        ("{{ if .Values.on }}yes{{ else }}no{{ end }}", "yes"),
        ("{{ if .Values.zero }}yes{{ else if .Values.on }}else{{ else }}no{{ end }}", "else"),
        ("{{ if and .Values.on (not .Values.off) }}yes{{ end }}", "yes"),
        ("{{ or .Values.none .Values.name }}", "x"),
        ("{{ with .Values.map }}{{ .a }}{{ $.Values.name }}{{ end }}", "1x"),
        ("{{ with .Values.none }}a{{ else }}b{{ end }}", "b"),
        ("{{ range .Values.items }}[{{ . }}]{{ end }}", "[a][b]"),
        ("{{ range $i, $each := .Values.items }}{{ $i }}{{ $each }}{{ end }}", "0a1b"),
        ("{{ range $key, $value := .Values.map }}{{ $key }}{{ $value }}{{ end }}", "a1b2"),
        ("{{ range .Values.none }}a{{ else }}b{{ end }}", "b"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ('{{ "a}}b" }}{{ `c"d` }}', 'a}}bc"d'),
        ('{{ printf "%s-%v" .Values.name 3 | quote }}', '"x-3"'),
        ('{{ default "d" .Values.none }}{{ default "d" .Values.name }}', "dx"),
        ('{{ define "t" }}{{ .part }}{{ end }}{{ include "t" (dict "part" "p") | trunc 1 }}', "p"),
        ("{{ (dict `a` `b`).a }}", "b"),
        ("{{ .Files.Get `f` }}", "<f>"),
        ("k:\n  {{- toYaml .Values.map | nindent 2 }}", "k:\n  a: 1\n  b: 2"),
        ("{{ .Values.absent }}|{{ .Values.off }}", "|false"),
        ('{{ if eq .Values.name "a" "x" }}yes{{ end }}', "yes"),
    ],
)
def test_what_a_template_means(text: str, expected: str) -> None:
    assert rendered(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{{ if true }}", "templates/t:1: if has no end"),
        ("\n{{ end }}", "templates/t:2: end without a start"),
        ("{{ .Values.name", "templates/t: an action has no end"),
        ("{{ tpl .Values.name . }}", "templates/t:1: function 'tpl' is unknown"),
        ("{{ .Values.name.more }}", "templates/t:1: .Values.name.more: 'more' of what has no fields"),
        ("{{ $nothing }}", "templates/t:1: undefined variable '$nothing'"),
        ("{{ .Values.items }}", "templates/t:1: a list cannot be shown: expected text or a number"),
        ('{{ include "nothing" . }}', "templates/t:1: template 'nothing' is not defined"),
        ("{{ .Values.name 1 }}", "templates/t:1: '.Values.name' is not a function"),
        ("{{ a ? b }}", "templates/t:1: '? b' is not understood"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(TemplateError) as failed:
        rendered(text)
    assert str(failed.value) == told


def test_a_template_may_refuse() -> None:
    with pytest.raises(Failed, match=r"^no$"):
        rendered('{{ if .Values.on }}{{ fail "no" }}{{ end }}')
    with pytest.raises(Failed, match=r"^needed$"):
        rendered('{{ required "needed" .Values.none }}')
