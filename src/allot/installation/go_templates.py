"""The subset of Go's text/template and Helm's functions that the chart uses.

So the chart is the only source of manifests, even without Helm. Anything unknown is an error, never ignored;
`tests/installation/test_chart.py` compares the output with Helm's. Templates are ours; values are data and never become templates.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from allot.yaml_values.reader import NotYAML, documents
from allot.yaml_values.writer import yaml_text

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<raw>`[^`]*`)
    |(?P<number>-?[0-9]+(?![\w.]))
    |(?P<sign>:=|[=|(),])
    |(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>(?:\.\w+)+)|(?P<dot>\.)
    |(?P<word>\w+)""",
    re.VERBOSE,
)
# To the end of an action, skipping its strings; or a comment.
_ACTION = re.compile(
    r"""\{\{(-\s)?\s*(?:(/\*.*?\*/)|((?:"(?:[^"\\\n]|\\.)*"|`[^`]*`|[^"`])*?))\s*(\s-)?\}\}""", re.DOTALL
)
_BLOCKS = ("if", "with", "range", "define")
_VERB = re.compile(r"%[svtd]")


class TemplateError(Exception):
    """A template that does not fit its values, or uses something unknown. The text names the place."""


class Failed(TemplateError):
    """A template's own `fail` message."""


# --- reading ---


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    # Whether it follows the previous one without a space.
    is_joined: bool


class _Text(msgspec.Struct, frozen=True):
    text: str


class _Action(msgspec.Struct, frozen=True):
    """An action; word: if, with, range, else, end, define, or empty for a pipeline."""

    word: str
    tokens: tuple[_Token, ...]
    place: str


class _Block(msgspec.Struct, frozen=True):
    """if, with or range, with what follows `else`."""

    action: _Action
    body: tuple[_Node, ...]
    otherwise: tuple[_Node, ...]


_Node = _Text | _Action | _Block


def _pieces(text: str, file: str) -> Iterator[_Text | _Action]:
    position, trims = 0, False
    for match in _ACTION.finditer(text):
        before = text[position : match.start()]
        before = before.lstrip() if trims else before
        yield _Text(before.rstrip() if match[1] else before)
        position, trims = match.end(), bool(match[4])
        if match[3] is not None:
            yield _action(match[3], f"{file}:{text.count(chr(10), 0, match.start()) + 1}")
    rest = text[position:]
    if "{{" in rest:
        raise TemplateError(f"{file}: an action has no end")
    yield _Text(rest.lstrip() if trims else rest)


def _action(text: str, place: str) -> _Action:
    tokens: list[_Token] = []
    position, is_joined = 0, False
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise TemplateError(f"{place}: {text[position:]!r} is not understood")
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup, match[0], is_joined))
        position, is_joined = match.end(), match.lastgroup != "space"
    first = tokens[0] if tokens else _Token("word", "", False)
    if first.kind == "word" and first.text in (*_BLOCKS, "else", "end"):
        return _Action(first.text, tuple(tokens[1:]), place)
    return _Action("", tuple(tokens), place)


class _Parser:
    """Turns pieces of a file into nested nodes; definitions are added to the chart's."""

    def __init__(self, text: str, file: str, definitions: dict[str, tuple[_Node, ...]]) -> None:
        self._pieces = list(_pieces(text, file))
        self._at = 0
        self._file = file
        self._definitions = definitions

    def parse(self) -> tuple[_Node, ...]:
        body, end = self._body()
        if end is not None:
            raise TemplateError(f"{end.place}: {end.word} without a start")
        return body

    def _body(self) -> tuple[tuple[_Node, ...], _Action | None]:
        """Nodes up to an `else` or `end`, and that action."""
        found: list[_Node] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if isinstance(piece, _Text) or not piece.word:
                found.append(piece)
            elif piece.word in ("else", "end"):
                return tuple(found), piece
            elif piece.word == "define":
                body, end = self._body()
                self._closed(piece, end)
                self._definitions[_text_of(piece.tokens[0])] = body
            else:
                found.append(self._block(piece))
        return tuple(found), None

    def _block(self, action: _Action) -> _Block:
        body, end = self._body()
        if end is None or end.word == "end":
            self._closed(action, end)
            return _Block(action, body, ())
        if end.tokens:
            # `else if` and `else with` are separate blocks that share the end.
            inner = _Action(end.tokens[0].text, end.tokens[1:], end.place)
            return _Block(action, body, (self._block(inner),))
        otherwise, last = self._body()
        self._closed(action, last)
        return _Block(action, body, otherwise)

    def _closed(self, action: _Action, end: _Action | None) -> None:
        if end is None or end.word != "end":
            raise TemplateError(f"{action.place}: {action.word} has no end")


def _text_of(token: _Token) -> str:
    return token.text[1:-1] if token.kind == "raw" else str(json.loads(token.text))


# --- evaluating ---


class _Scope:
    """The names in scope: the dot and variables."""

    def __init__(self, dot: Any, outer: _Scope | None = None) -> None:
        self.dot = dot
        self._outer = outer
        self._variables: dict[str, Any] = {} if outer is not None else {"$": dot}

    def define(self, name: str, value: Any) -> None:
        self._variables[name] = value

    def assign(self, name: str, value: Any) -> None:
        self._holder(name)._variables[name] = value

    def value(self, name: str) -> Any:
        return self._holder(name)._variables[name]

    def _holder(self, name: str) -> _Scope:
        scope: _Scope | None = self
        while scope is not None and name not in scope._variables:
            scope = scope._outer
        if scope is None:
            raise TemplateError(f"undefined variable {name!r}")
        return scope


class Templates:
    """The templates of a chart by file name: those whose name begins with _ only define."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._definitions: dict[str, tuple[_Node, ...]] = {}
        self._files = {name: _Parser(text, name, self._definitions).parse() for name, text in files.items()}
        self._functions: dict[str, Callable[..., Any]] = {**_FUNCTIONS, "include": self._include}

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """The text of a file; TemplateError, Failed."""
        return self._text(self._files[name], _Scope(context))

    def _include(self, name: str, context: Any) -> str:
        if name not in self._definitions:
            raise TemplateError(f"template {name!r} is not defined")
        return self._text(self._definitions[name], _Scope(context))

    def _text(self, nodes: Sequence[_Node], scope: _Scope) -> str:
        return "".join(self._node(node, scope) for node in nodes)

    def _node(self, node: _Node, scope: _Scope) -> str:
        if isinstance(node, _Text):
            return node.text
        action = node if isinstance(node, _Action) else node.action
        try:
            if isinstance(node, _Action):
                return self._printed(node, scope)
            return self._range(node, scope) if action.word == "range" else self._choice(node, scope)
        except TemplateError as error:
            if isinstance(error, Failed) or str(error).startswith("templates/"):
                raise
            raise TemplateError(f"{action.place}: {error}") from None

    def _printed(self, action: _Action, scope: _Scope) -> str:
        tokens = action.tokens
        if len(tokens) > 1 and tokens[0].kind == "variable" and tokens[1].text in (":=", "="):
            value = self._pipeline(tokens[2:], scope)
            (scope.define if tokens[1].text == ":=" else scope.assign)(tokens[0].text, value)
            return ""
        return _shown(self._pipeline(tokens, scope))

    def _choice(self, block: _Block, scope: _Scope) -> str:
        value = self._pipeline(block.action.tokens, scope)
        if not value:
            return self._text(block.otherwise, _Scope(scope.dot, scope))
        return self._text(block.body, _Scope(value if block.action.word == "with" else scope.dot, scope))

    def _range(self, block: _Block, scope: _Scope) -> str:
        tokens = block.action.tokens
        names: list[str] = []
        if len(tokens) > 1 and tokens[1].text == ":=":
            names, tokens = [tokens[0].text], tokens[2:]
        elif len(tokens) > 3 and tokens[1].text == "," and tokens[3].text == ":=":
            names, tokens = [tokens[0].text, tokens[2].text], tokens[4:]
        found = self._pipeline(tokens, scope)
        items = sorted(found.items()) if isinstance(found, dict) else list(enumerate(found or ()))
        if not items:
            return self._text(block.otherwise, _Scope(scope.dot, scope))
        parts = []
        for key, value in items:
            inner = _Scope(value, scope)
            for name, meant in zip(names, (key, value)[-len(names) :], strict=False):
                inner.define(name, meant)
            parts.append(self._text(block.body, inner))
        return "".join(parts)

    # --- pipelines ---

    def _pipeline(self, tokens: Sequence[_Token], scope: _Scope) -> Any:
        value: Any = None
        for number, command in enumerate(_split(tokens)):
            value = self._command(command, scope, () if number == 0 else (value,))
        return value

    def _command(self, tokens: Sequence[_Token], scope: _Scope, piped: tuple[Any, ...]) -> Any:
        operands = _operands(tokens)
        if not operands:
            raise TemplateError("an empty command")
        first, rest = operands[0], operands[1:]
        if len(first) == 1 and first[0].kind == "word" and first[0].text not in _CONSTANTS:
            return self._call(first[0].text, rest, scope, piped)
        value = self._operand(first, scope)
        if callable(value):
            return value(*(self._operand(each, scope) for each in rest), *piped)
        if rest or piped:
            raise TemplateError(f"{first[0].text!r} is not a function")
        return value

    def _call(self, name: str, operands: Sequence[Sequence[_Token]], scope: _Scope, piped: tuple[Any, ...]) -> Any:
        if name in ("and", "or"):
            # The first decisive operand ends the evaluation.
            value: Any = None
            for each in (*operands, *piped):
                value = self._operand(each, scope) if isinstance(each, list) else each
                if bool(value) == (name == "or"):
                    break
            return value
        function = self._functions.get(name)
        if function is None:
            raise TemplateError(f"function {name!r} is unknown")
        try:
            return function(*(self._operand(each, scope) for each in operands), *piped)
        except (TypeError, ValueError, AttributeError) as error:
            raise TemplateError(f"{name}: {error}") from error

    def _operand(self, tokens: Sequence[_Token], scope: _Scope) -> Any:
        token = tokens[0]
        if token.kind == "sign":
            # In parentheses, perhaps with fields after them.
            last = len(tokens) - 1 if tokens[-1].kind == "field" else len(tokens)
            value = self._pipeline(tokens[1 : last - 1], scope)
            return _fields(value, tokens[last].text) if last < len(tokens) else value
        match token.kind:
            case "string" | "raw":
                return _text_of(token)
            case "number":
                return int(token.text)
            case "variable":
                name, dot, path = token.text.partition(".")
                return _fields(scope.value(name), dot + path)
            case "field":
                return _fields(scope.dot, token.text)
            case "dot":
                return scope.dot
            case _ if token.text in _CONSTANTS:
                return _CONSTANTS[token.text]
        # A function without arguments.
        return self._call(token.text, (), scope, ())


_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "nil": None}


def _split(tokens: Sequence[_Token]) -> Iterator[list[_Token]]:
    """The commands of a pipeline."""
    command: list[_Token] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if token.kind == "sign" and token.text == "|" and depth == 0:
            yield command
            command = []
        else:
            command.append(token)
    yield command


def _operands(tokens: Sequence[_Token]) -> list[list[_Token]]:
    """Each operand of a command, those in parentheses whole."""
    found: list[list[_Token]] = []
    depth = 0
    for token in tokens:
        is_sign = token.kind == "sign"
        is_suffix = token.kind == "field" and token.is_joined and found and found[-1][-1].text == ")"
        if depth or is_suffix:
            found[-1].append(token)
        else:
            found.append([token])
        depth += {"(": 1, ")": -1}.get(token.text, 0) if is_sign else 0
    return found


def _fields(value: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        if not isinstance(value, Mapping):
            raise TemplateError(f"{path}: {name!r} of what has no fields")
        value = value.get(name)
    return value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise TemplateError(f"a {type(value).__name__} cannot be shown: expected text or a number")


# --- functions ---


def _nindent(columns: int, text: str) -> str:
    return "\n" + "\n".join(" " * columns + line for line in text.split("\n"))


def _printf(form: str, *values: Any) -> str:
    rest = iter(values)
    return _VERB.sub(lambda _: _shown(next(rest)), form)


def _dict(*pairs: Any) -> dict[str, Any]:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _merge(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge mappings: the first with a key wins."""
    merged: dict[str, Any] = {}
    for value in values:
        for key, item in (value or {}).items():
            merged.setdefault(key, item)
    return merged


def _fail(message: str) -> None:
    raise Failed(message)


def _required(message: str, value: Any) -> Any:
    if value is None or value == "":
        raise Failed(message)
    return value


def _from_yaml(text: str) -> Any:
    try:
        return next(documents(text)).value
    except NotYAML as error:
        raise TemplateError(str(error)) from error


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "append": lambda values, item: [*values, item],
    "concat": lambda *lists: [item for each in lists for item in each],
    "contains": lambda part, text: part in text,
    "default": lambda fallback, value=None: value or fallback,
    "dict": _dict,
    "eq": lambda first, *others: any(first == each for each in others),
    "fail": _fail,
    "fromYaml": _from_yaml,
    "get": lambda values, key: values.get(key, ""),
    "gt": lambda first, second: first > second,
    "int": int,
    "join": lambda separator, values: separator.join(map(_shown, values)),
    "list": lambda *items: list(items),
    "merge": _merge,
    "nindent": _nindent,
    "not": lambda value: not value,
    "printf": _printf,
    "quote": lambda value: json.dumps(_shown(value), ensure_ascii=False),
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "toYaml": lambda value: yaml_text(value, sort_keys=True).removesuffix("\n"),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
}
