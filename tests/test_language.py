"""Messages are read by people under stress: phrases that are not idiomatic stay out of every text that users see.

That is every string literal of the package but docstrings, its data files, and every page of the documentation, where the help of
all commands is. A phrase is a regular expression, with what to say instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import re2

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGE = _ROOT / "src" / "allot"

PHRASES = {
    r"\b(?:can|cannot|could|to) (?:not )?(?:still )?be had\b": "is (not) available, is free",
    r"\b(?:is|are|was|were|be) told\b": "is reported, is named, learns; not known",
    r"\binto order\b": "fix, repair",
    r"\bbelongs? into\b": "belongs in",
    r"(?<!there )\bis no (?:command|data directory|duration|field|hyphen|JSON|label|list|mapping|message|number|object|period|"
    r"quote|resource|socket|success|taint|text|type|URL|CEL)\b": "is not a ...",
    r"\bare no (?:quotes|message|hyphens)\b": "are not ...",
    r"\bquotes of print\b": "typographic quotes",
    r"\bof the keyboard\b": "plain, straight",
    r"\bpassed over\b": "ignored",
    r"\bput \S+ right\b": "fix",
    r"\bas far as known\b": "as far as is known",
    r"\bgets? to see\b": "can see",
    r"\b(?:is|are) there twice\b": "appears twice",
    r"\bdevices? that would (?:not )?do\b": "devices that (do not) fit",
    r"\balthough they would (?:not )?do\b": "although they (do not) fit",
    r"\bwould do as well\b": "would fit as well",
    r"\bto mend\b|\bmended\b|\bmends\b": "to fix",
    r"\btaken as enough\b": "assumed to be enough",
    r"\banew\b": "again, recreated",
    r"\bsee that the\b": "check that the",
    r"\bthe one of (?:the|a)\b": "that of, 's",
    r"\bis that of\b": "belongs to",
    r"\bany more\b": "no longer",
    r"\bwhich \S+ has not\b(?! [a-z])": "lacks",
    r"\btells (?:how|of)\b": "shows, logs",
    r"\b(?:is|are) in order\b": "is valid, is accepted",
    r"\bshall\b": "is to, may, needs",
    r"\bof before \d": "from before",
    r"\bwhat is the matter\b": "the cause",
    r"\blooks? after\b": "runs in, manages",
    r"\bwaits to go\b": "is still terminating",
    r"\bgoes on waiting\b": "keeps waiting",
    r"\bnobody answered\b": "no answer",
    r"\bdealt with\b": "handled",
    r"\bfinds? (?:another|no other) place\b": "fits elsewhere",
    r"\bhangs? on what\b": "belongs to what",
    r"\bmore are gone\b": "more have ended",
    r"\bdo(?:es)? (?:no|any) harm\b": "has no effect",
    r"\bin spite of that it\b": "still",
    r"\b(?:has|have) not got\b": "lacks, does not have",
    r"\band now\?": "what's next",
    r"\bin the place of\b": "instead of",
    r"\bin vain\b": "without success",
    r"\bper cent\b": "percent",
    r"\bfor ever\b": "forever",
    r"\bwrong turn\b": "mistake",
    r"\bsooner or later\b": "eventually",
    r"\bas it stands\b": "unchanged, current",
    r"\bthe right to (?:list|read|watch)\b": "permission to",
    r"\bthe same of an?\b": "the same for",
    r"\bgets? to know\b": "learns",
    r"\bis no (?:block device|price|longer name)\b": "is not a ...",
    r"\bcut into slices\b": "split into ResourceSlices",
    r"\bstands between\b": "excludes, prevents",
    r"\bis as it should be\b": "is correct",
    r"\bwhich is where\b": "there",
    r"\bnobody answers\b": "no answer",
    r"\btells? (?:its|which) (?:devices|pools|CPUs)\b": "exposes, lists, reports",
    r"\bhow sure\b": "how certain",
    r"\bless sure than\b": "less certain than",
    r"\bmade again\b": "recreated",
    r"\bexists already\b": "already exists",
    r"\bdata folder\b": "data directory",
    r"\bmay be repeated\b": "repeatable",
    r"\bwhoever (?:has|set|sets|makes|reads|runs|schedules)\b": "everybody who, the component that",
    r"\bbrought up to date\b": "updated",
    r"\bgo(?:es)? on with its\b": "continues its",
    r"\bhas not enough\b": "does not have enough",
    r"\bas a way round\b": "as a workaround",
    r"\bmakes? \S+ again\b": "recreates",
    r"\bnobody (?:uses|has|can|asks|else|is|made|makes|looks|reads|may)\b": "no pod, no user, no client",
    r"\bwhoever\b": "the user, the component, a process",
    r"\bsomebody\b": "someone, another owner, the user",
    r"\bsee to\b": "check, fix",
    r"\b(?:is|are) at work\b": "is working on it",
    r"\bno right to\b": "is not entitled to",
    r"\bswitched (?:on|off)\b": "enabled, disabled",
    r"\bnot in force\b": "has not taken effect",
    r"\bturn(?:s|ed)? o(?:n|ff) feature gate\b": "enable, disable",
    r"\btried out\b": "tried",
    r"\ball the same\b": "still",
    r"\bthere is no such\b": "unknown, does not exist",
    r"(?<!what )\b(?:is|are) not there\b": "does not exist",
    r"\bis not known\b(?! to)": "is unknown",
    r"\bleaves out every\b": "skips every",
}
# Of the whole source, docstrings and comments included: these are read by people who change it.
IN_SOURCE = (
    r"\bwhoever\b",
    r"\bsomebody\b",
    r"\b(?:can|cannot|could|to|may) (?:not )?be had\b",
    r"\btried out\b",
    r"\bmade anew\b",
    r"\bworked out\b",
    r"\bto be read behind\b",
    r"\blone pods?\b",
    r"\bquotes of print\b",
    r"\bfor ever\b",
)
# Kubernetes' own words, which stay as they are.
_UPSTREAM = ("pod does not exist any more",)
_ANY = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
# Finds at least as much as _ANY, in one pass however many phrases there are: RE2 does not look around, so conditions are left out.
_PERHAPS = re2.compile("(?i)" + re.sub(r"\(\?<?!.*?\)", "", _ANY.pattern))
# Where a literal goes on as another one, or on another line.
_SEAM = re.compile(r"""["']\s*[rbuf]*["']""", re.IGNORECASE)
_LINE_END = re.compile(r"\\[nt]")
_EXPRESSION = re.compile(r"\{[^{}]*\}")


def _literals(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and texts of the string literals of a module that are no docstrings."""
    text = path.read_text()
    # Few modules have a phrase anywhere, comments included; parsing all of them takes several times as long as reading them.
    if not _has_perhaps(text):
        return
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            # Its parts come again, each alone.
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def _has_perhaps(code: str) -> bool:
    """Whether a phrase may be in a literal of some code."""
    code = " ".join(_LINE_END.sub(" ", _SEAM.sub("", code)).split())
    return any(_PERHAPS.search(text.encode(errors="replace")) for text in (code, _EXPRESSION.sub("x", code)))


def _found(path: Path, texts: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{path.relative_to(_ROOT)}:{line}: {match.group()!r}: say {_instead(match.group())}"
        for line, text in texts
        for match in _phrases(_own_words(text))
    ]


def _phrases(text: str) -> Iterator[re.Match[str]]:
    return _ANY.finditer(text) if _PERHAPS.search(text.encode(errors="replace")) else iter(())


def _own_words(text: str) -> str:
    text = " ".join(text.split())
    for words in _UPSTREAM:
        text = text.replace(words, "")
    return text


def _instead(phrase: str) -> str:
    return next(right for wrong, right in PHRASES.items() if re.search(wrong, phrase, re.IGNORECASE))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Paragraphs of a page, as a phrase may go over a line's end."""
    number, paragraph, start = 0, [], 1
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if line.strip() and not line.startswith("|"):
            paragraph.append(line)
            continue
        yield start, " ".join(paragraph)
        yield number, line
        paragraph, start = [], number + 1
    yield start, " ".join(paragraph)


def test_messages_have_no_phrases_that_people_stumble_over() -> None:
    found = [each for path in sorted(_PACKAGE.rglob("*.py")) for each in _found(path, _literals(path))]
    for path in sorted(_PACKAGE.rglob("*.yaml")):
        found += _found(path, iter(enumerate(path.read_text().split("\n"), 1)))
    assert found == []


def test_docstrings_and_comments_have_none_of_the_worst() -> None:
    worst = re2.compile("(?i)" + "|".join(IN_SOURCE))
    found = [
        f"{path.relative_to(_ROOT)}: {match.group().decode()!r}"
        for path in sorted(_PACKAGE.rglob("*.py"))
        for match in worst.finditer(path.read_bytes())
    ]
    assert found == []


def test_pages_have_none_either() -> None:
    pages = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
    assert [each for page in pages for each in _found(page, _lines(page))] == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("no device can be had on this node", "can be had"),
        ("the reason is told", "is told"),
        ("get device gpu-0 into order", "into order"),
        ("it belongs\ninto devices", "belongs into"),
    ],
)
def test_they_are_found_where_they_are(text: str, phrase: str) -> None:
    (found,) = _found(_ROOT / "x", iter([(1, text)]))
    assert phrase in found


@pytest.mark.parametrize(
    "code",
    [
        'x = "no device can be had"',
        'x = (\n    "it belongs "\n    f"into {y}"\n)',
        'x = f"put {name(1, 2)} right"',
        r'x = "the reason is\ntold"',
        "x = [{'a': 'it is told'}]",
        "x = [{1: f'{y} is told'}]",
    ],
)
def test_modules_are_not_left_out_if_one_is_in_them(code: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(code)
    assert any(list(_phrases(_own_words(text))) for _, text in _literals(module))


def test_there_are_enough_of_them() -> None:
    assert len(PHRASES) >= 84
