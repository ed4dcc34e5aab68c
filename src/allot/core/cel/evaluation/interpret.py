"""The interpreter: evaluates a plan step by step, counts the cost and stops at the limit. The reference semantics.

Errors inside the language are values of class CelError here, because logical operators absorb them; what ends an
evaluation (cost, upstream's panics) is raised. One level of the plan takes one frame of Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from allot.core.cel.costs.runtime import (
    ATTRIBUTE_COST,
    LIST_CREATE_COST,
    MAP_CREATE_COST,
    QUALIFIER_COST,
    STRUCT_CREATE_COST,
    call_price,
)
from allot.core.cel.costs.tracker import Tracker
from allot.core.cel.data.comparison import contains, equal
from allot.core.cel.data.text import go_text
from allot.core.cel.data.values import (
    GO_TYPES,
    INT_MAX,
    MISSING,
    NO_SUCH_OVERLOAD,
    NONE,
    CelError,
    ConcatList,
    Duration,
    EvaluationAborted,
    KeyedMap,
    Message,
    MutableList,
    MutableMap,
    Optional,
    Timestamp,
    Value,
    find,
    is_list,
    is_map,
    keys,
    map_key,
    type_name,
)
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Block,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    ListNode,
    MapNode,
    Membership,
    MessageNode,
    Node,
    Operand,
    OptionalOr,
    Or,
    Qualifier,
    Variable,
)
from allot.core.cel.evaluation.scopes import BlockScope, FoldScope, RootScope, Scope
from allot.core.cel.syntax.ast import UInt

_QUALIFIER_CLASSES: Final[frozenset[type]] = frozenset((str, int, UInt, bool, float))
_EQUAL_PRICE: Final = call_price("_==_", "equals")
_NOT_EQUAL_PRICE: Final = call_price("_!=_", "not_equals")
# Functions whose price does not depend on the size of their result, and the classes of such results; adding elements to a
# list in place does not recreate it.
_MAKERS: Final = frozenset(("_+_", "format", "flatten", "replace"))
_MADE: Final[frozenset[type]] = frozenset((str, list, ConcatList))
_RECEIVERS: Final[frozenset[type]] = frozenset((str, Duration, Timestamp))


class Evaluation(msgspec.Struct, frozen=True):
    """The outcome of an evaluation: a value or an error, and the cost."""

    value: Any
    cost: int
    error: str | None = None


def evaluate(plan: Node, variables: Mapping[str, Value], limit: int | None = None) -> Evaluation:
    """Evaluate a plan. Never raises."""
    tracker = Tracker() if limit is None else Tracker(limit)
    try:
        value = Interpreter(RootScope(variables), tracker).run(plan)
    except EvaluationAborted as error:
        return Evaluation(None, tracker.cost, error.message)
    except RecursionError:
        return Evaluation(None, tracker.cost, "internal error: expression nests too deeply for the stack that is left")
    if value.__class__ is CelError:
        return Evaluation(None, tracker.cost, value.message)
    return Evaluation(value, tracker.cost)


class Interpreter:
    """One evaluation in progress."""

    __slots__ = ("_tracker", "scope")

    def __init__(self, scope: Scope, tracker: Tracker) -> None:
        self.scope = scope
        self._tracker = tracker

    def run(self, node: Node) -> Value:
        """The value of a node in the current scope; a CelError for an error."""
        return _STEPS[node.__class__](self, node)

    # --- constants and calls ---

    def _constant(self, node: Constant) -> Value:
        self._tracker.observe(node.id, node.value)
        return node.value

    def _call(self, node: Call) -> Value:
        binding = node.binding
        stops = binding is not None and binding.stops_at_error
        values: list[Value] = []
        failed: CelError | None = None
        for argument in node.arguments:
            value = _STEPS[argument.__class__](self, argument)
            if value.__class__ is CelError and failed is None:
                failed = value
                if stops:
                    break
            values.append(value)
        if node.function == "@not_strictly_false":
            result: Value = values[0] if values[0].__class__ is bool else True
        elif failed is not None:
            result = failed
        elif binding is None:
            result = _unbound(node, values)
        else:
            try:
                result = binding.call(*values)
            except CelError as error:
                result = error
        return self._charged(node, result)

    def _charged(self, node: Call, result: Value) -> Value:
        if node.function in _MAKERS:
            result_class = result.__class__
            if result_class in _MADE:
                self._tracker.make(len(result))
        seen = self._tracker.take(node.arguments)
        cost = 0 if seen is None else node.price(seen, result)
        self._tracker.observe(node.id, result, cost)
        return result

    def _equal(self, node: Equal) -> Value:
        left = _STEPS[node.left.__class__](self, node.left)
        right = _STEPS[node.right.__class__](self, node.right)
        result: Value
        if left.__class__ is CelError:
            result = left
        elif right.__class__ is CelError:
            result = right
        else:
            same = equal(left, right)
            # An error in a comparison counts as "not equal" when negated.
            result = same is not True if node.negated else CelError(NO_SUCH_OVERLOAD) if same is None else same
        seen = self._tracker.take((node.left, node.right))
        price = _NOT_EQUAL_PRICE if node.negated else _EQUAL_PRICE
        cost = 0 if seen is None else price(seen, result)
        self._tracker.observe(node.id, result, cost)
        return result

    # --- logic ---

    def _and(self, node: And) -> Value:
        return self._logical(node, node.terms, False)

    def _or(self, node: Or) -> Value:
        return self._logical(node, node.terms, True)

    def _logical(self, node: Node, terms: tuple[Node, ...], decisive: bool) -> Value:
        result: Value = not decisive
        for term in terms:
            value = _STEPS[term.__class__](self, term)
            if value is decisive:
                result = decisive
                break
            if value.__class__ is not bool and result.__class__ is bool:
                result = value if value.__class__ is CelError else CelError(NO_SUCH_OVERLOAD)
        for term in terms:
            self._tracker.drop(term.id)
        self._tracker.observe(node.id, result)
        return result

    def _membership(self, node: Membership) -> Value:
        wanted = _STEPS[node.wanted.__class__](self, node.wanted)
        result = wanted
        if wanted.__class__ is not CelError:
            map_key(wanted)  # a lookup: upstream panics for values that cannot be keys
            result = wanted.__class__ in _QUALIFIER_CLASSES and contains(node.elements, wanted)
        self._tracker.observe(node.id, result)
        return result

    def _optional_or(self, node: OptionalOr) -> Value:
        left = _STEPS[node.left.__class__](self, node.left)
        result: Value
        if left.__class__ is CelError:
            result = left
        elif left.__class__ is not Optional:
            result = CelError(NO_SUCH_OVERLOAD)
        elif left.present:
            result = left.value if node.unwrapped else left
        else:
            result = _STEPS[node.right.__class__](self, node.right)
        self._tracker.observe(node.id, result)
        return result

    # --- chains ---

    def _chain(self, node: Chain) -> Value:
        value = self._resolved(node)
        tracker = self._tracker
        source = node.source
        if isinstance(source, Conditional):
            tracker.drop(source.falsy.id)
            tracker.drop(source.truthy.id)
            tracker.drop(source.condition.id)
            cost = -ATTRIBUTE_COST if node.test else 0
        else:
            tracker.drop(node.id)
            cost = 0 if node.test else ATTRIBUTE_COST
        if node.test and value.__class__ is Optional:
            value = value.present
        tracker.observe(node.id, value, cost)
        return value

    def _resolved(self, chain: Chain) -> Value:
        """The value of a chain without the charge for the chain as a whole."""
        source = chain.source
        if isinstance(source, Conditional):
            return self._chosen(source)
        if isinstance(source, Variable):
            value = self.scope.lookup(source.name, self)
            if value is MISSING:
                return CelError(f"no such attribute(s): {source.name}")
        else:
            assert isinstance(source, Operand), "chains begin with a variable, a value or a conditional"
            value = _STEPS[source.node.__class__](self, source.node)
        if value.__class__ is CelError or not chain.qualifiers:
            return value
        return self._qualified(value, chain.qualifiers)

    def _chosen(self, source: Conditional) -> Value:
        condition = _STEPS[source.condition.__class__](self, source.condition)
        if condition is True:
            return self._resolved(source.truthy)
        if condition is False:
            return self._resolved(source.falsy)
        return condition if condition.__class__ is CelError else CelError(NO_SUCH_OVERLOAD)

    def _qualified(self, value: Value, qualifiers: tuple[Qualifier, ...]) -> Value:
        optional = False
        if value.__class__ is Optional:
            if not value.present:
                return value
            optional, value = True, value.value
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            value = self._step(value, qualifier, optional)
            if value is MISSING:
                return NONE
            if value.__class__ is CelError:
                return value
        return Optional(value) if optional else value

    def _step(self, value: Value, qualifier: Qualifier, optional: bool) -> Value:
        """One selection; MISSING when it is optional and finds nothing. That is not charged, nor are its errors."""
        index = qualifier.index
        key: Value = qualifier.key
        if index is not None:
            key = self._resolved(index) if isinstance(index, Chain) else _STEPS[index.__class__](self, index)
            if key.__class__ not in _QUALIFIER_CLASSES and key.__class__ is not CelError:
                key = CelError(f"invalid qualifier type: {GO_TYPES[key.__class__]}")
        found: Value = key
        if key.__class__ is not CelError:
            found = qualified(value, key, optional or qualifier.test)
            if qualifier.test and not optional and found.__class__ is not CelError:
                found = found is not MISSING
        if found is MISSING or (optional and found.__class__ is CelError):
            return found
        if index is not None and not isinstance(index, Chain):
            self._tracker.drop(qualifier.id)
        self._tracker.observe(qualifier.id, found, QUALIFIER_COST)
        return found

    # --- literals ---

    def _list(self, node: ListNode) -> Value:
        elements: list[Value] = []
        result: Value = elements
        for position, element in enumerate(node.elements):
            value = _STEPS[element.__class__](self, element)
            if value.__class__ is not CelError and position in node.optional:
                if value.__class__ is not Optional:
                    value = CelError(
                        f"cannot initialize optional list element from non-optional value {go_text(value)}"
                    )
                elif not value.present:
                    continue
                else:
                    value = value.value
            if value.__class__ is CelError:
                result = value
                break
            elements.append(value)
        self._tracker.take(node.elements)
        self._tracker.observe(node.id, result, LIST_CREATE_COST)
        return result

    def _map(self, node: MapNode) -> Value:
        entries = KeyedMap()
        result: Value = entries
        for key_node, value_node, optional in zip(node.keys, node.values, node.optional, strict=True):
            key = _STEPS[key_node.__class__](self, key_node)
            if key.__class__ is CelError:
                result = key
                break
            value = _STEPS[value_node.__class__](self, value_node)
            if value.__class__ is not CelError and optional:
                value = _optional_entry(entries, key, value)
                if value is MISSING:
                    continue
            if value.__class__ is CelError:
                result = value
                break
            entries[map_key(key)] = value
        self._tracker.take([child for pair in zip(node.keys, node.values, strict=True) for child in pair])
        self._tracker.observe(node.id, result, MAP_CREATE_COST)
        return result

    def _message(self, node: MessageNode) -> Value:
        fields: dict[str, Value] = {}
        result: Value = Message(node.type_name, fields)
        for name, value_node, optional in zip(node.names, node.values, node.optional, strict=True):
            value = _STEPS[value_node.__class__](self, value_node)
            if value.__class__ is not CelError and optional:
                value = _optional_entry(fields, name, value)
                if value is MISSING:
                    continue
            if value.__class__ is CelError:
                result = value
                break
            fields[name] = value
        self._tracker.take(node.values)
        self._tracker.observe(node.id, result, STRUCT_CREATE_COST)
        return result

    # --- loops ---

    def _fold(self, node: Fold) -> Value:
        outer = self.scope
        scope = FoldScope(outer, node)
        iter_range = _STEPS[node.iter_range.__class__](self, node.iter_range)
        result = _range_error(node, iter_range)
        if result is None:
            self.scope = scope
            try:
                self._iterate(node, scope, iter_range)
                scope.finish()
                result = _STEPS[node.result.__class__](self, node.result)
            finally:
                self.scope = outer
            if scope.mutable:
                result = _frozen(result)
        self._tracker.drop(node.iter_range.id)
        self._tracker.observe(node.id, result)
        return result

    def _iterate(self, node: Fold, scope: FoldScope, iter_range: Value) -> None:
        condition, step = _STEPS[node.condition.__class__], _STEPS[node.step.__class__]
        for first, second in _entries(node, iter_range):
            scope.next(first, second)
            if condition(self, node.condition) is False:
                return
            scope.accumulate(step(self, node.step))

    def _block(self, node: Block) -> Value:
        outer = self.scope
        self.scope = BlockScope(outer, node)
        try:
            return _STEPS[node.result.__class__](self, node.result)
        finally:
            self.scope = outer


def _unbound(node: Call, values: list[Value]) -> CelError:
    """The error for a call without an implementation."""
    if values and values[0].__class__ in _RECEIVERS:
        return CelError(NO_SUCH_OVERLOAD)
    suffix = f" {node.id}" if len(values) > 2 else ""
    return CelError(f"{NO_SUCH_OVERLOAD}: {node.function}{suffix}")


def qualified(value: Value, key: Value, presence: bool) -> Value:
    """What a key selects; for presence tests, MISSING instead of an error if the key does not exist."""
    if is_map(value):
        found = find(value, key)
        if found is not MISSING or presence:
            return found
        return CelError(f"no such key: {go_text(key)}")
    if is_list(value):
        return _element(value, key, presence)
    if value.__class__ is Message and key.__class__ is str:
        # An unset field is null: the type has every field.
        return value.fields.get(key, MISSING if presence else None)
    return MISSING if presence else CelError(f"no such key: {go_text(key)}")


def _element(elements: Value, key: Value, presence: bool) -> Value:
    index = key
    if key.__class__ is str or key.__class__ is bool:
        return CelError(f"unsupported index type '{type_name(key)}' in list")
    if key.__class__ is float:
        if not -(2.0**63) < key < 2.0**63 or not key.is_integer():
            return CelError(f"unsupported index value {go_text(key)} in list")
        index = int(key)
    elif key > INT_MAX:
        return CelError(f"unsupported index value {go_text(key)} in list")
    if 0 <= index < len(elements):
        return elements[index]
    return MISSING if presence else CelError(f"index out of bounds: {go_text(key)}")


def _optional_entry(entries: dict[Any, Value], key: Value, value: Value) -> Value:
    if value.__class__ is not Optional:
        return CelError(f"cannot initialize optional entry '{go_text(key)}' from non-optional value {go_text(value)}")
    if value.present:
        return value.value
    entries.pop(map_key(key), None)
    return MISSING


def _range_error(node: Fold, iter_range: Value) -> Value:
    if iter_range.__class__ is CelError:
        return iter_range
    if is_list(iter_range) or is_map(iter_range):
        return None
    go_type = GO_TYPES[iter_range.__class__]
    if node.iter_var2:
        return CelError(f"unsupported comprehension range type: {go_type}")
    return CelError(f"got '{go_type}', expected iterable type")


def _entries(node: Fold, iter_range: Value) -> Any:
    """Pairs of iteration variables. The range is copied: an accumulator may change during iteration."""
    if is_map(iter_range):
        if node.iter_var2:
            return list(zip(keys(iter_range), iter_range.values(), strict=True))
        return [(key, None) for key in keys(iter_range)]
    if node.iter_var2:
        return list(enumerate(iter_range))
    return [(element, None) for element in iter_range]


def _frozen(value: Value) -> Value:
    if value.__class__ is MutableList:
        return list(value)
    return KeyedMap(value) if value.__class__ is MutableMap else value


_STEPS: Final[dict[type, Callable[[Interpreter, Any], Value]]] = {
    Constant: Interpreter._constant,
    Chain: Interpreter._chain,
    Call: Interpreter._call,
    Equal: Interpreter._equal,
    And: Interpreter._and,
    Or: Interpreter._or,
    Membership: Interpreter._membership,
    OptionalOr: Interpreter._optional_or,
    ListNode: Interpreter._list,
    MapNode: Interpreter._map,
    MessageNode: Interpreter._message,
    Fold: Interpreter._fold,
    Block: Interpreter._block,
}
