"""The macros of CEL and of the extension libraries: calls that the parser replaces by other expressions.

Each is a function from the call's target and arguments to an expression. `MacroSet`s are plain mappings that an
environment composes. Knows no types: the checker interprets the expansions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allot.core.cel.syntax.ast import Comprehension, Expr, Ident, ListExpr, Literal, MapExpr, Select, StructExpr
from allot.core.cel.syntax.builder import ACCUMULATOR, Expansion, Macro, MacroError, MacroKey

MacroSet = Mapping[MacroKey, Macro]

# The name that older versions used for the accumulator is still refused as an iteration variable.
_ACCUMULATOR_NAMES = (ACCUMULATOR, "__result__")
_UNUSED_VARIABLE = "#unused"
_SORT_INPUT = "@__sortBy_input__"


def _has(expansion: Expansion, _target: Expr | None, args: Sequence[Expr]) -> Expr:
    selection = args[0]
    if isinstance(selection, Select):
        return expansion.presence_test(selection.operand, selection.field)
    raise MacroError(selection.id, "invalid argument to has() macro")


def _variable(node: Expr, complaint: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.id, complaint)
    if node.name in _ACCUMULATOR_NAMES:
        raise MacroError(node.id, "iteration variable overwrites accumulator variable")
    return node.name


def _two_variables(first: Expr, second: Expr) -> tuple[str, str]:
    complaint = "argument must be a simple name"
    for node in (first, second):
        if not isinstance(node, Ident):
            raise MacroError(node.id, complaint)
    assert isinstance(first, Ident), "checked above"
    assert isinstance(second, Ident), "checked above"
    if first.name == second.name:
        raise MacroError(second.id, f"duplicate variable name: {first.name}")
    return _variable(first, complaint), _variable(second, complaint)


def _quantifier_variables(args: Sequence[Expr]) -> tuple[str, str]:
    """The one or two variables before the predicate, which is the last argument."""
    if len(args) == 2:
        return _variable(args[0], "argument must be a simple name"), ""
    return _two_variables(args[0], args[1])


def _range(target: Expr | None) -> Expr:
    assert target is not None, "only member calls are expanded by a receiver macro"
    return target


def _all(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _quantifier_variables(args)
    init = expansion.literal(True)
    # The inner node is made first, as upstream evaluates arguments first; so ids match.
    accumulator = expansion.accumulator()
    condition = expansion.call("@not_strictly_false", accumulator)
    accumulator = expansion.accumulator()
    step = expansion.call("_&&_", accumulator, args[-1])
    result = expansion.accumulator()
    return expansion.comprehension(_range(target), variables, ACCUMULATOR, init, condition, step, result)


def _exists(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _quantifier_variables(args)
    init = expansion.literal(False)
    accumulator = expansion.accumulator()
    condition = expansion.call("@not_strictly_false", expansion.call("!_", accumulator))
    accumulator = expansion.accumulator()
    step = expansion.call("_||_", accumulator, args[-1])
    result = expansion.accumulator()
    return expansion.comprehension(_range(target), variables, ACCUMULATOR, init, condition, step, result)


def _exists_one(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _quantifier_variables(args)
    init = expansion.literal(0)
    condition = expansion.literal(True)
    accumulator, one = expansion.accumulator(), expansion.literal(1)
    increment = expansion.call("_+_", accumulator, one)
    step = expansion.call("_?_:_", args[-1], increment, expansion.accumulator())
    accumulator, one = expansion.accumulator(), expansion.literal(1)
    result = expansion.call("_==_", accumulator, one)
    return expansion.comprehension(_range(target), variables, ACCUMULATOR, init, condition, step, result)


def _map(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = (_variable(args[0], "argument is not an identifier"), "")
    return _collect(expansion, _range(target), variables, args[1] if len(args) == 3 else None, args[-1])


def _filter(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = (_variable(args[0], "argument is not an identifier"), "")
    return _collect(expansion, _range(target), variables, args[1], args[0])


def _collect(
    expansion: Expansion, target: Expr, variables: tuple[str, str], condition: Expr | None, element: Expr
) -> Expr:
    """A list with an element for each entry of target that meets the condition."""
    init = expansion.list()
    forever = expansion.literal(True)
    accumulator = expansion.accumulator()
    step = expansion.call("_+_", accumulator, expansion.list(element))
    if condition is not None:
        step = expansion.call("_?_:_", condition, step, expansion.accumulator())
    result = expansion.accumulator()
    return expansion.comprehension(target, variables, ACCUMULATOR, init, forever, step, result)


def _transform_list(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _two_variables(args[0], args[1])
    accumulator = expansion.accumulator()
    step = expansion.call("_+_", accumulator, expansion.list(args[-1]))
    if len(args) == 4:
        step = expansion.call("_?_:_", args[2], step, expansion.accumulator())
    init, forever, result = expansion.list(), expansion.literal(True), expansion.accumulator()
    return expansion.comprehension(_range(target), variables, ACCUMULATOR, init, forever, step, result)


def _transform_map(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _two_variables(args[0], args[1])
    accumulator, key = expansion.accumulator(), expansion.ident(variables[0])
    return _insert(expansion, _range(target), variables, args, (accumulator, key, args[-1]))


def _transform_map_entry(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    variables = _two_variables(args[0], args[1])
    return _insert(expansion, _range(target), variables, args, (expansion.accumulator(), args[-1]))


def _insert(
    expansion: Expansion, target: Expr, variables: tuple[str, str], args: Sequence[Expr], inserted: tuple[Expr, ...]
) -> Expr:
    """A map with additions for each entry of target."""
    step = expansion.call("cel.@mapInsert", *inserted)
    if len(args) == 4:
        step = expansion.call("_?_:_", args[2], step, expansion.accumulator())
    init, forever, result = expansion.empty_map(), expansion.literal(True), expansion.accumulator()
    return expansion.comprehension(target, variables, ACCUMULATOR, init, forever, step, result)


def _let(expansion: Expansion, name: str, init: Expr, result: Expr) -> Comprehension:
    """`name` stands for init within result: a comprehension over nothing."""
    nothing, never, step = expansion.list(), expansion.literal(False), expansion.ident(name)
    return expansion.comprehension(nothing, (_UNUSED_VARIABLE, ""), name, init, never, step, result)


def _bind(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr | None:
    if not _in_namespace(target, "cel"):
        return None
    if not isinstance(args[0], Ident):
        raise MacroError(args[0].id, "cel.bind() variable names must be simple identifiers")
    return _let(expansion, args[0].name, args[1], args[2])


def _in_namespace(target: Expr | None, namespace: str) -> bool:
    return isinstance(target, Ident) and target.name == namespace


def _opt_map(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    name = _optional_variable("optMap", args[0])
    condition = expansion.member_call("hasValue", _range(target))
    mapped = expansion.call("optional.of", _unwrapped(expansion, _range(target), name, args[1]))
    return expansion.call("_?_:_", condition, mapped, expansion.call("optional.none"))


def _opt_flat_map(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    name = _optional_variable("optFlatMap", args[0])
    condition = expansion.member_call("hasValue", _range(target))
    mapped = _unwrapped(expansion, _range(target), name, args[1])
    return expansion.call("_?_:_", condition, mapped, expansion.call("optional.none"))


def _optional_variable(macro: str, node: Expr) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.id, f"{macro}() variable name must be a simple identifier")
    return node.name


def _unwrapped(expansion: Expansion, target: Expr, name: str, result: Expr) -> Comprehension:
    """`name` stands for the optional target's value within result."""
    nothing = expansion.list()
    init = expansion.member_call("value", expansion.copy(target))
    never, step = expansion.literal(False), expansion.ident(name)
    return expansion.comprehension(nothing, (_UNUSED_VARIABLE, ""), name, init, never, step, result)


def _sort_by(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr:
    target = _range(target)
    step = expansion.ident(_SORT_INPUT)
    if isinstance(target, Literal | MapExpr | StructExpr):
        raise MacroError(
            target.id, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = _map(expansion, expansion.copy(step), args)
    sorted_list = expansion.member_call("@sortByAssociatedKeys", expansion.copy(step), keys)
    nothing, never = expansion.list(), expansion.literal(False)
    return expansion.comprehension(nothing, (_UNUSED_VARIABLE, ""), _SORT_INPUT, target, never, step, sorted_list)


def _extreme(name: str, function: str) -> Macro:
    """math.greatest or math.least, which take any number of numbers or a list of them."""

    def expand(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr | None:
        if not _in_namespace(target, "math"):
            return None
        if not args:
            raise MacroError(_range(target).id, f"{name}() requires at least one argument")
        if len(args) == 1:
            if not (_is_list_of_numbers(args[0]) or _may_be_number(args[0])):
                raise MacroError(args[0].id, f"{name}() invalid single argument value")
            return expansion.call(function, args[0])
        for arg in args:
            if not _may_be_number(arg):
                raise MacroError(arg.id, f"{name}() simple literal arguments must be numeric")
        return expansion.call(function, *args) if len(args) == 2 else expansion.call(function, expansion.list(*args))

    return expand


def _may_be_number(node: Expr) -> bool:
    if isinstance(node, Literal):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return not isinstance(node, ListExpr | MapExpr | StructExpr)


def _is_list_of_numbers(node: Expr) -> bool:
    return isinstance(node, ListExpr) and bool(node.elements) and all(map(_may_be_number, node.elements))


def _block(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr | None:
    if not _in_namespace(target, "cel"):
        return None
    if not isinstance(args[0], ListExpr):
        raise MacroError(args[0].id, "cel.block requires the first arg to be a list literal")
    return expansion.call("cel.@block", *args)


def _block_variable(macro: str, prefix: str) -> Macro:
    """A name that a block gives to one of its slots, or to a variable of a comprehension in it."""

    def expand(expansion: Expansion, target: Expr | None, args: Sequence[Expr]) -> Expr | None:
        if not _in_namespace(target, "cel"):
            return None
        numbers: list[str] = []
        for arg in args:
            if not (isinstance(arg, Literal) and type(arg.value) is int and arg.value >= 0):
                raise MacroError(arg.id, f"cel.{macro} requires non-negative int constant arguments")
            numbers.append(str(arg.value))
        return expansion.ident(prefix + ":".join(numbers))

    return expand


STANDARD_MACROS: MacroSet = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("exists", 2, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}
OPTIONAL_MACROS: MacroSet = {("optMap", 2, True): _opt_map, ("optFlatMap", 2, True): _opt_flat_map}
BINDING_MACROS: MacroSet = {("bind", 3, True): _bind}
TWO_VARIABLE_MACROS: MacroSet = {
    ("all", 3, True): _all,
    ("exists", 3, True): _exists,
    ("existsOne", 3, True): _exists_one,
    ("exists_one", 3, True): _exists_one,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_map_entry,
    ("transformMapEntry", 4, True): _transform_map_entry,
}
LIST_MACROS: MacroSet = {("sortBy", 2, True): _sort_by}
MATH_MACROS: MacroSet = {
    ("greatest", -1, True): _extreme("math.greatest", "math.@max"),
    ("least", -1, True): _extreme("math.least", "math.@min"),
}
BLOCK_MACROS: MacroSet = {
    ("block", 2, True): _block,
    ("index", 1, True): _block_variable("index", "@index"),
    ("iterVar", 2, True): _block_variable("iterVar", "@it:"),
    ("accuVar", 2, True): _block_variable("accuVar", "@ac:"),
}
KUBERNETES_MACROS: MacroSet = {
    **STANDARD_MACROS,
    **OPTIONAL_MACROS,
    **BINDING_MACROS,
    **TWO_VARIABLE_MACROS,
    **LIST_MACROS,
}
