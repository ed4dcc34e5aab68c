"""How the slow parser reads tokens, reports errors and continues: ANTLR's error strategy, as in upstream's parser.

Producing upstream's messages means repeating upstream's recovery: drop a token if the next one fits, pretend a missing one
is present, or skip to something that any unfinished rule can continue with. Each place in the grammar has a name and a set
of tokens that can come there; the grammar itself is in `grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from allot.core.cel.syntax.errors import Issues
from allot.core.cel.syntax.lexer import (
    BYTES,
    END,
    ESCAPED_IDENTIFIER,
    FLOAT,
    IDENTIFIER,
    INT,
    STRING,
    UINT,
    Token,
    Unrecognized,
    next_token,
)
from allot.core.cel.syntax.limits import RECOVERY_ATTEMPTS_MAX, RECOVERY_LOOKAHEAD_TOKENS_MAX, SYNTAX_ERRORS_MAX

# The order in which messages list tokens.
_TOKEN_ORDER = (
    *(END, "==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?"),
    *(":", "+", "*", "/", "%", "true", "false", "null"),
    *(FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED_IDENTIFIER),
)
_RANK = {kind: rank for rank, kind in enumerate(_TOKEN_ORDER)}
_UNQUOTED = frozenset((END, FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED_IDENTIFIER))
# In a set of tokens: the rule may end here.
RULE_END = ""
# Upstream rewords this one message.
_KEYWORD_AS_FIELD = re.compile("no viable alternative at input '.(true|false|null)'")

TokenSet = frozenset[str]


class DecisionPoint(Enum):
    """What to do when the next token does not fit where the grammar chooses an alternative."""

    BLOCK = "drop one token or fail"
    LOOP = "skip until something fits"


class Abandoned(Exception):
    """Parsing stops for good; all errors have been reported."""


class RuleFailed(Exception):
    """A rule cannot continue at the current token; caught where the rule ends."""

    def __init__(self, message: str, offending: Token) -> None:
        super().__init__(message)
        self.offending = offending


class TokenReader:
    """Tokens on demand; lexical errors are reported as they occur."""

    def __init__(self, source: str, report: Reporter) -> None:
        self._source = source
        self._report = report
        self._tokens: list[Token] = []
        self._position = 0
        # Spans that belong to no token; messages that quote source text omit them.
        self._skipped: list[tuple[int, int]] = []
        self.index = 0

    def token(self, ahead: int = 1) -> Token:
        """The token `ahead` tokens from here; 1 is the current one. After the end, always the end token."""
        wanted = self.index + ahead - 1
        while len(self._tokens) <= wanted and not (self._tokens and self._tokens[-1].kind == END):
            self._read()
        return self._tokens[min(wanted, len(self._tokens) - 1)]

    def kind(self, ahead: int = 1) -> str:
        """Its kind."""
        return self.token(ahead).kind

    def advance(self) -> Token:
        """Goes past the current token, unless it is the end."""
        token = self.token()
        if token.kind != END:
            self.index += 1
        return token

    def _read(self) -> None:
        token, self._position = next_token(self._source, self._position)
        if isinstance(token, Unrecognized):
            self._skipped.append((token.start, self._position))
            self._report.syntax_error(token.start, f"token recognition error at: {_quoted(token.text)}")
        else:
            self._tokens.append(token)

    def text(self, first: Token, last: Token) -> str:
        """The source from one token to another, white space included."""
        if first.kind == END:
            return END
        stop = last.start if last.kind == END else last.start + len(last.text)
        pieces: list[str] = []
        position = first.start
        for start, end in self._skipped:
            if position <= start < stop:
                pieces.append(self._source[position:start])
                position = end
        pieces.append(self._source[position:stop])
        return "".join(pieces)


class Reporter:
    """Turns errors into issues, up to upstream's limit."""

    def __init__(self, issues: Issues) -> None:
        self._issues = issues
        self._reports = 0

    def syntax_error(self, offset: int, message: str) -> None:
        """Raises Abandoned when there are too many."""
        message = _KEYWORD_AS_FIELD.sub(r"mismatched input '\1' expecting IDENTIFIER", message)
        if self._reports >= SYNTAX_ERRORS_MAX:
            self._issues.report(offset, f"Syntax error: More than {SYNTAX_ERRORS_MAX} syntax errors")
            raise Abandoned
        self._reports += 1
        self._issues.report(offset, f"Syntax error: {message}")

    def give_up(self, message: str) -> Abandoned:
        """Records why parsing stops."""
        self._issues.report(-1, message)
        return Abandoned()


class Recovery:
    """The state of error handling. `calls` are the places from which the unfinished rules were called, outermost first."""

    def __init__(self, reader: TokenReader, report: Reporter, sets: Mapping[str, TokenSet]) -> None:
        self.reader = reader
        self.report = report
        self.sets = sets
        self.calls: list[str] = []
        # The last place reached in the grammar.
        self.place = ""
        self._recovering = False
        self._error_index = -1
        self._error_places: set[str] = set()
        self._attempts = 0

    def expected(self, place: str) -> set[str]:
        """What can come at a place, given which rules are unfinished."""
        following = self.sets[place]
        result = set(following)
        for call in reversed(self.calls):
            if RULE_END not in following:
                break
            following = self.sets[f"{call}>"]
            result |= following
        result.discard(RULE_END)
        if RULE_END in following:
            result.add(END)
        return result

    def match(self, place: str, kind: str) -> Token:
        """Takes a token of that kind, or a substitute."""
        self.place = place
        token = self.reader.token()
        if token.kind == kind:
            self._matched()
            return self.reader.advance()
        return self._recover_inline(kind)

    def take(self) -> Token:
        """Takes the current token, which is known to fit."""
        self._matched()
        return self.reader.advance()

    def _matched(self) -> None:
        self._recovering = False
        self._error_index = -1
        self._error_places.clear()

    def sync(self, place: str, kind: DecisionPoint = DecisionPoint.BLOCK) -> None:
        """Before a choice: does the next token fit at all?"""
        self.place = place
        if self._recovering:
            return
        tokens = self.sets[place]
        if RULE_END in tokens or self.reader.kind() in tokens:
            return
        if kind is DecisionPoint.BLOCK:
            if self._drop_token() is None:
                raise self.mismatch()
            return
        self._unwanted()
        self._skip_to(self.expected(place) | self._recovery_set())

    def mismatch(self) -> RuleFailed:
        """The current token is none of those expected here."""
        token = self.reader.token()
        expected = _listed(self.expected(self.place))
        return RuleFailed(f"mismatched input {_quoted(token.text)} expecting {expected}", token)

    def no_viable(self, ahead: int = 1) -> RuleFailed:
        """The tokens up to the one `ahead` fit no alternative."""
        offending = self.reader.token(ahead)
        return RuleFailed(
            f"no viable alternative at input {_quoted(self.reader.text(self.reader.token(), offending))}", offending
        )

    def rule_failed(self, error: RuleFailed) -> None:
        """Reports what stopped a rule and skips to where one of the unfinished rules can continue."""
        if not self._recovering:
            self._recovering = True
            self.report.syntax_error(error.offending.start, str(error))
        self._count_attempt()
        skipped = 0
        if self._error_index == self.reader.index and self.place in self._error_places:
            # The same error at the same token again: consume the token to avoid an endless loop.
            self.reader.advance()
            skipped = 1
        self._error_index = self.reader.index
        self._error_places.add(self.place)
        self._skip_to(self._recovery_set(), skipped)

    def _count_attempt(self) -> None:
        if self._attempts == RECOVERY_ATTEMPTS_MAX:
            message = f"error recovery attempt limit exceeded: {RECOVERY_ATTEMPTS_MAX}"
            self.report.syntax_error(self.reader.token().start, message)
            raise Abandoned
        self._attempts += 1

    def _recover_inline(self, kind: str) -> Token:
        self._count_attempt()
        token = self._drop_token()
        if token is not None:
            return self.reader.advance()
        current = self.reader.token()
        if current.kind in self.expected(f"{self.place}>"):
            self._complain(f"missing {_listed(self.expected(self.place))} at {_quoted(current.text)}", current)
            return Token(kind, "<missing>", current.start)
        raise self.mismatch()

    def _drop_token(self) -> Token | None:
        """If the token after the current one fits, the current one is extraneous."""
        if self.reader.kind(2) not in self.expected(self.place):
            return None
        self._unwanted()
        self.reader.advance()
        token = self.reader.token()
        self._matched()
        return token

    def _unwanted(self) -> None:
        token = self.reader.token()
        self._complain(f"extraneous input {_quoted(token.text)} expecting {_listed(self.expected(self.place))}", token)

    def _complain(self, message: str, token: Token) -> None:
        if not self._recovering:
            self._recovering = True
            self.report.syntax_error(token.start, message)

    def _recovery_set(self) -> set[str]:
        """What any of the unfinished rules can continue with once the rule it called ends."""
        result: set[str] = set()
        for call in self.calls:
            result |= self.sets[f"{call}>"]
        result.discard(RULE_END)
        return result

    def _skip_to(self, tokens: set[str], skipped: int = -1) -> None:
        """Skips to one of the tokens; when recovering from a failed rule, only up to a bound."""
        while (kind := self.reader.kind()) != END and kind not in tokens:
            if skipped >= RECOVERY_LOOKAHEAD_TOKENS_MAX:
                raise self.report.give_up(
                    f"error recovery token lookahead limit exceeded: {RECOVERY_LOOKAHEAD_TOKENS_MAX}"
                )
            if skipped >= 0:
                skipped += 1
            self.reader.advance()


def _quoted(text: str) -> str:
    text = text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{text}'"


def _listed(kinds: Iterable[str]) -> str:
    names = [kind if kind in _UNQUOTED else f"'{kind}'" for kind in sorted(kinds, key=_RANK.__getitem__)]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
