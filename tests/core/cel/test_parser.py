"""From source text to syntax tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.cel.antlr.grammar_errors import diagnose
from allot.core.cel.syntax.ast import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Parsed, Select, StructExpr
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.macros import KUBERNETES_MACROS
from allot.core.cel.syntax.parser import parse
from allot.core.cel.syntax.unparse import unparse


def tree(source: str) -> str:
    """The tree as nested calls, so that grouping shows."""

    def show(node: object) -> str:
        match node:
            case Call(target=None):
                return f"{node.function}({', '.join(map(show, node.args))})"
            case Call():
                return f"{show(node.target)}.{node.function}({', '.join(map(show, node.args))})"
            case Select():
                return f"{show(node.operand)}.{node.field}{'~' if node.test_only else ''}"
            case Ident():
                return node.name
            case Literal():
                return repr(node.value)
            case ListExpr():
                return f"[{', '.join(map(show, node.elements))}|{node.optional_indices}]"
            case _:
                return type(node).__name__

    return show(parse(source).root)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + 2 * 3 - 4", "_-_(_+_(1, _*_(2, 3)), 4)"),
        ("a == b == c", "_==_(_==_(a, b), c)"),
        ("a || b && c", "_||_(a, _&&_(b, c))"),
        ("a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("(a ? b : c) ? d : e", "_?_:_(_?_:_(a, b, c), d, e)"),
        ("!!a", "a"),
        ("!!!a", "!_(a)"),
        ("-1", "-1"),
        ("--1", "1"),
        ("---1", "-_(1)"),
        ("-(1)", "-_(1)"),
        ("!-1", "!_(-1)"),
        ("1 - -1", "_-_(1, -1)"),
        ("-a.b", "-_(a.b)"),
        ("a.b.c(1)[2].d", "_[_](a.b.c(1), 2).d"),
        (".a.b", ".a.b"),
        (".f(1)", ".f(1)"),
        ("a.?b[?c].d", "_[?_](_?._(a, 'b'), c).d"),
        ("a.`b-c`", "a.b-c"),
        ("[1, ?a, ]", "[1, a|(1,)]"),
        ("[,]", "[|()]"),
        ("a in [1]", "@in(a, [1|()])"),
        ("has(a.b)", "a.b~"),
        ("f()", "f()"),
    ],
)
def test_operators_group_as_in_the_language_definition(source: str, expected: str) -> None:
    assert tree(source) == expected


def test_map_and_message_literals_keep_their_entries() -> None:
    root = parse('{"a": 1, ?b: c,}').root
    assert isinstance(root, MapExpr)
    assert [entry.optional for entry in root.entries] == [False, True]
    message = parse("a.B{c: 1, ?`d-e`: 2}").root
    assert isinstance(message, StructExpr)
    assert message.type_name == "a.B"
    assert [(field.field, field.optional) for field in message.fields] == [("c", False), ("d-e", True)]


def test_nodes_stand_where_messages_point() -> None:
    parsed = parse("ab.cd(e) + f[0]")
    root = parsed.root
    assert isinstance(root, Call)
    offsets = parsed.offsets
    left, right = root.args
    assert isinstance(left, Call)
    assert isinstance(right, Call)
    assert offsets[root.id] == 9
    assert offsets[left.id] == 5, "a call on a target stands at its parenthesis"
    assert offsets[right.id] == 12, "an index at its bracket"


def test_ids_are_unique_and_have_offsets() -> None:
    parsed = parse("[1, 2].exists(x, x > 1) && {'a': 1}.all(k, v, v > 0)")
    seen: list[int] = []
    stack: list[object] = [parsed.root]
    while stack:
        node = stack.pop()
        match node:
            case Call():
                stack.extend(node.args)
                if node.target is not None:
                    stack.append(node.target)
            case ListExpr():
                stack.extend(node.elements)
            case Comprehension():
                stack += [node.iter_range, node.accu_init, node.loop_condition, node.loop_step, node.result]
            case MapExpr():
                stack += [part for entry in node.entries for part in (entry.key, entry.value)]
        seen.append(node.id)  # type: ignore[attr-defined]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(parsed.offsets)


def test_what_was_written_is_kept_for_macros() -> None:
    parsed = parse("a.exists(x, has(x.y))")
    call = parsed.macro_calls[parsed.root.id]
    assert isinstance(call, Call)
    assert call.function == "exists"
    assert isinstance(parsed.root, Comprehension)
    assert unparse(parsed.root, parsed) == "a.exists(x, has(x.y))"


DEEP = {
    "parentheses": ("(" * 5000 + "1" + ")" * 5000, "expression recursion limit exceeded: 250"),
    "open parentheses": ("(" * 10_000, "expression recursion limit exceeded: 250"),
    "lists": ("[" * 5000 + "]" * 5000, "expression recursion limit exceeded: 250"),
    "conditions": ("true ? 1 : " * 900 + "1", "expression recursion limit exceeded: 250"),
    "sums in parentheses": ("1 + (" * 130 + "1" + ")" * 130, "expression recursion limit exceeded: 250"),
    "selections": ("a" + ".a" * 300, "max recursion depth exceeded"),
    "sums": ("1" + " + 1" * 300, "max recursion depth exceeded"),
    "too many characters": ("x" * 100_001, "expression code point size exceeds limit: size: 100001, limit 100000"),
}


@pytest.mark.parametrize("name", DEEP)
def test_nesting_has_upstreams_bounds(name: str) -> None:
    source, message = DEEP[name]
    with pytest.raises(CelCompileError) as caught:
        parse(source)
    assert str(caught.value) == f"ERROR: <input>:-1:0: {message}"


@pytest.mark.parametrize(
    "source", ["!" * 10_000 + "true", "-" * 10_000 + "1", "true" + " && true" * 1000, "(" * 200 + "1" + ")" * 200]
)
def test_long_expressions_within_the_bounds_parse(source: str) -> None:
    assert isinstance(parse(source), Parsed)


def test_repeating_macros_cannot_grow_without_bound() -> None:
    with pytest.raises(CelCompileError, match="macro expansion repeats more than"):
        parse("optional.of(1)" + ".optMap(x, x)" * 40)


def test_half_a_surrogate_pair_is_replaced() -> None:
    root = parse('"\ud800"').root
    assert isinstance(root, Literal)
    assert root.value == "�"


SOUP_TOKENS = """
a b . , ( ) [ ] { } ? : - ! + * == in && || 1 2.5 3u 's' b'x' true null `e` has f( T{ .? [? # if x.map
"""
SOUP = st.lists(st.sampled_from(SOUP_TOKENS.split()), max_size=12).map(" ".join)


@given(SOUP)
def test_the_two_parsers_never_disagree(source: str) -> None:
    try:
        fast = parse(source)
    except CelCompileError as refused:
        with pytest.raises(CelCompileError) as caught:
            diagnose(source, KUBERNETES_MACROS, True)
        assert str(caught.value) == str(refused)
    else:
        assert diagnose(source, KUBERNETES_MACROS, True) == fast


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(source: str) -> None:
    try:
        parse(source)
    except CelCompileError as error:
        assert error.issues
