"""The static estimate: the least and the most that evaluating an expression may cost.

Admission refuses a selector whose worst case is above the limit, so the numbers must be upstream's: those of cel-go's
estimator with the options that Kubernetes sets (a presence test itself is free) and the sizes that the API guarantees
for a device. An expression of unknown cost has the worst case 18446744073709551615.

Prices: reading a variable or a field costs one, a constant nothing, creating a list, map or message
10, 30 or 40, a call what `functions` says, a loop its body times the size of its range. Sizes of
intermediate results are tracked on the way. Nothing here evaluates anything; `runtime` has the prices of actual
evaluations.

The walk keeps its own stack (every visit is a generator that yields the nodes whose cost it wants), because nested
macros expand to trees deeper than Python's stack.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import msgspec

from allot.core.cel.checking.types import DYN, CelType, Checked, Kind
from allot.core.cel.costs.calls import (
    LIST_CREATE_COST,
    MAP_CREATE_COST,
    STRUCT_CREATE_COST,
    CallEstimate,
    Operand,
    traversal,
)
from allot.core.cel.costs.calls import Call as PricedCall
from allot.core.cel.costs.functions import library_estimate, standard_estimate
from allot.core.cel.costs.ranges import (
    INFINITE,
    ONE,
    UNKNOWN,
    ZERO,
    CostEstimate,
    Range,
    SizeEstimate,
    exactly,
    multiply,
)
from allot.core.cel.costs.sizes import EMPTY_PATH, INDICES, ITEMS, KEYS, VALUES, Path, SizeEstimates
from allot.core.cel.syntax.ast import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Select,
    StructExpr,
)

_Visit = Generator[Expr, CostEstimate, CostEstimate]

_SCALAR_KINDS = (Kind.BOOL, Kind.DOUBLE, Kind.DURATION, Kind.INT, Kind.TIMESTAMP, Kind.UINT)
# Selecting from anything else, notably `dyn`, is free.
_SELECTABLE_KINDS = (Kind.MAP, Kind.OBJECT, Kind.TYPE_PARAM)
_ACCUMULATORS = ("__result__", "@result")
_CONCATENATIONS = ("add_string", "add_bytes", "add_list")
# Operations whose price does not depend on the size of their result. (Upstream concatenates lists without copying.)
_UNPRICED = ("add_list", "string_replace_string_string", "string_replace_string_string_int")
# The same, but nothing is known about the size.
_UNBOUNDED = ("string_format", "list_flatten", "list_flatten_int")
# The union with this range is the other range.
_NOTHING = Range(INFINITE, 0)


class _Entries(msgspec.Struct, frozen=True):
    """The sizes of keys (for a list: 1) and values of a collection that the expression creates."""

    kind: Kind
    key: SizeEstimate
    value: SizeEstimate


class _Local(msgspec.Struct, frozen=True):
    """What is known about a variable of a comprehension."""

    path: Path
    size: SizeEstimate | None
    entries: _Entries | None = None


class Estimate(msgspec.Struct, frozen=True):
    """The minimum and maximum cost of an expression, and how much uncharged work it may do."""

    min: int
    max: int
    # The largest text or list that one operation may create without being charged for its size.
    growth: int

    @property
    def work_max(self) -> int:
        """A bound on the elements and characters that evaluation may write."""
        return multiply(self.max, self.growth)


def estimate(checked: Checked, sizes: SizeEstimates) -> Estimate:
    """The cost of evaluating the expression with variables of the given sizes."""
    estimator = _Estimator(checked, sizes)
    cost = estimator.run()
    return Estimate(cost.min, cost.max, estimator.growth)


class _Estimator:
    """One estimate in progress: what is known about the nodes visited so far."""

    def __init__(self, checked: Checked, sizes: SizeEstimates) -> None:
        self._checked = checked
        self._declared = sizes
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, SizeEstimate] = {}
        self._entries: dict[int, _Entries] = {}
        self._locals: dict[str, list[_Local]] = {}
        self.growth = 1

    def run(self) -> CostEstimate:
        """Visit the whole tree."""
        stack: list[_Visit] = []
        step = self._visit(self._checked.parsed.root)
        while True:
            cost: CostEstimate | None = None
            if isinstance(step, Range):
                if not stack:
                    return step
                cost = step
            else:
                stack.append(step)
            try:
                # A visit that has just begun is sent nothing.
                child = stack[-1].send(cost)  # type: ignore[arg-type]
            except StopIteration as done:
                stack.pop()
                step = done.value
            else:
                step = self._visit(child)

    def _visit(self, node: Expr) -> _Visit | CostEstimate:
        match node:
            case Literal():
                return ZERO
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._dyn(node) if node.function == "dyn" else self._call(node)
            case ListExpr():
                return self._list(node)
            case MapExpr():
                return self._map(node)
            case StructExpr():
                return self._struct(node)
            case Comprehension():
                return self._bind(node) if _is_bind(node) else self._loop(node)

    def _ident(self, node: Ident) -> CostEstimate:
        local = self._local(node.name)
        self._paths[node.id] = local.path if local else Path.root(node.name)
        return ONE

    def _select(self, node: Select) -> _Visit:
        cost = yield node.operand
        if node.test_only:
            return cost
        if self._type(node.operand).kind in _SELECTABLE_KINDS:
            cost += ONE
        self._paths[node.id] = self._path(node.operand).extended(node.field)
        return cost

    def _dyn(self, node: Call) -> _Visit:
        cost = yield node.args[0]
        self._adopt(node, node.args[0])
        return cost + ONE

    def _call(self, node: Call) -> _Visit:
        arg_costs: list[CostEstimate] = []
        args: list[Operand] = []
        for arg in node.args:
            arg_costs.append((yield arg))
            args.append(self._operand(arg))
        target, target_cost = None, ZERO
        if node.target is not None:
            target_cost = yield node.target
            target = self._operand(node.target)
        total = _NOTHING
        result_size: SizeEstimate | None = None
        for overload_id in self._checked.references[node.id].overload_ids:
            call = PricedCall(node.function, overload_id, target, args, self._declared)
            cost, size = self._overload(node, call, arg_costs)
            total |= cost
            if overload_id in _UNPRICED:
                self.growth = max(self.growth, (size or UNKNOWN).max)
            elif overload_id in _UNBOUNDED:
                self.growth = INFINITE
            if size is not None:
                result_size = size if result_size is None else result_size | size
            if overload_id in ("index_list", "index_map"):
                result_size = self._index(node, overload_id)
            if result_size is None:
                result_size = self._size(node)
        if result_size is not None:
            self._sizes[node.id] = result_size
        return target_cost + total

    def _index(self, node: Call, overload_id: str) -> SizeEstimate | None:
        """Follow an index; returns the size of the elements if the expression created them."""
        operand = node.args[0]
        entries = self._entry_sizes(operand)
        self._paths[node.id] = self._path(operand).extended(ITEMS if overload_id == "index_list" else VALUES)
        return entries.value if entries else None

    def _overload(
        self, node: Call, call: PricedCall, arg_costs: list[CostEstimate]
    ) -> tuple[CostEstimate, SizeEstimate | None]:
        """The cost of one overload with its arguments, and the size of the result."""
        found = library_estimate(call)
        if found is None:
            if call.overload_id in ("logical_and", "logical_or"):
                # The second operand may never be evaluated.
                left, right = arg_costs
                return Range(left.min, (left + right).max), None
            if call.overload_id == "conditional":
                return self._conditional(node, call.args, arg_costs)
            if call.overload_id in _CONCATENATIONS and len(call.args) == 2:
                found = self._concatenation(node, call)
            else:
                found = standard_estimate(call)
        return sum(arg_costs, found.cost), found.result_size

    def _conditional(
        self, node: Call, args: Sequence[Operand], arg_costs: list[CostEstimate]
    ) -> tuple[CostEstimate, SizeEstimate | None]:
        condition, if_true, if_false = arg_costs
        self._join_entries(node, args[1].expr, args[2].expr)
        return condition + (if_true | if_false), (args[1].size or UNKNOWN) | (args[2].size or UNKNOWN)

    def _concatenation(self, node: Call, call: PricedCall) -> CallEstimate:
        left, right = call.args
        self._join_entries(node, left.expr, right.expr)
        size = (left.size or UNKNOWN) + (right.size or UNKNOWN)
        # Lists are concatenated without copying.
        return CallEstimate(ONE if call.overload_id == "add_list" else traversal(size), size)

    def _list(self, node: ListExpr) -> _Visit:
        cost, element_size = ZERO, _NOTHING if node.elements else ZERO
        for element in node.elements:
            cost += yield element
            element_size |= self._size(element) or UNKNOWN
        self._entries[node.id] = _Entries(Kind.LIST, ONE, element_size)
        return cost + exactly(LIST_CREATE_COST)

    def _map(self, node: MapExpr) -> _Visit:
        cost = ZERO
        key_size = value_size = _NOTHING if node.entries else ZERO
        for entry in node.entries:
            cost += yield entry.key
            cost += yield entry.value
            key_size |= self._size(entry.key) or UNKNOWN
            value_size |= self._size(entry.value) or UNKNOWN
        self._entries[node.id] = _Entries(Kind.MAP, key_size, value_size)
        return cost + exactly(MAP_CREATE_COST)

    def _struct(self, node: StructExpr) -> _Visit:
        cost = ZERO
        for field in node.fields:
            cost += yield field.value
        return cost + exactly(STRUCT_CREATE_COST)

    def _bind(self, node: Comprehension) -> _Visit:
        # The range is empty, but creating it is charged like any other list.
        cost = yield node.iter_range
        cost += yield node.accu_init
        self._push_accumulator(node)
        cost += yield node.result
        self._locals[node.accu_var].pop()
        self._adopt(node, node.result)
        return cost

    def _loop(self, node: Comprehension) -> _Visit:
        cost = yield node.iter_range
        cost += yield node.accu_init
        self._push_accumulator(node)
        iteration_variables = self._push_iteration_variables(node)
        condition_cost = yield node.loop_condition
        step_cost = yield node.loop_step
        for name in iteration_variables:
            self._locals[name].pop()
        cost += yield node.result
        self._locals[node.accu_var].pop()
        count = self._size(node.iter_range) or UNKNOWN
        cost += count * (step_cost + condition_cost)
        self._loop_result(node, count)
        return cost

    def _push_accumulator(self, node: Comprehension) -> None:
        init = node.accu_init
        self._push(node.accu_var, _Local(self._path(init), self._size(init), self._entry_sizes(init)))

    def _push_iteration_variables(self, node: Comprehension) -> tuple[str, ...]:
        """Declare the variables of a loop; returns their names."""
        if node.iter_var2:
            self._push_key(node.iter_var, node.iter_range)
            # If the first variable has the name of the loop's range, upstream takes the range to be that
            # variable from here on. The order of these two lines has the same effect.
            self._push_value(node.iter_var2, node.iter_range)
            return node.iter_var, node.iter_var2
        if self._is_list(node.iter_range):
            self._push_value(node.iter_var, node.iter_range)
        else:
            self._push_key(node.iter_var, node.iter_range)
        return (node.iter_var,)

    def _push_key(self, name: str, collection: Expr) -> None:
        entries = self._entry_sizes(collection)
        step = INDICES if self._is_list(collection) else KEYS
        self._push(name, _Local(self._path(collection).extended(step), entries.key if entries else None))

    def _push_value(self, name: str, collection: Expr) -> None:
        entries = self._entry_sizes(collection)
        step = ITEMS if self._is_list(collection) else VALUES
        self._push(name, _Local(self._path(collection).extended(step), entries.value if entries else None))

    def _is_list(self, collection: Expr) -> bool:
        entries = self._entry_sizes(collection)
        return (entries.kind if entries else self._type(collection).kind) is Kind.LIST

    def _loop_result(self, node: Comprehension, count: SizeEstimate) -> None:
        """A loop's result is as large as its initial value (a constant) or its range (a collection)."""
        match node.accu_init:
            case Literal():
                size = self._size(node.accu_init)
                if size is not None:
                    self._sizes[node.id] = size
            case ListExpr() | MapExpr():
                self._sizes[node.id] = count
                entries = self._entry_sizes(node.loop_step)
                if entries is not None:
                    self._entries[node.id] = entries

    # --- what is known about nodes and variables

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _local(self, name: str) -> _Local | None:
        scopes = self._locals.get(name)
        return scopes[-1] if scopes else None

    def _local_of(self, node: Expr) -> _Local | None:
        return self._local(node.name) if isinstance(node, Ident) else None

    def _type(self, node: Expr) -> CelType:
        return self._checked.types.get(node.id, DYN)

    def _path(self, node: Expr) -> Path:
        local = self._local_of(node)
        return local.path if local else self._paths.get(node.id, EMPTY_PATH)

    def _operand(self, node: Expr) -> Operand:
        path = self._path(node)
        if path and path.steps()[0] in _ACCUMULATORS:
            path = EMPTY_PATH
        return Operand(node, self._type(node), path, self._size(node))

    def _size(self, node: Expr) -> SizeEstimate | None:
        known = self._sizes.get(node.id) or _literal_size(node)
        if known is not None:
            return known
        declared = self._declared.estimate(self._path(node))
        if declared is not None:
            # Kept, so that a later change of a shared path does not affect this node.
            self._sizes[node.id] = declared
            return declared
        if _is_scalar(self._type(node)):
            return ONE
        local = self._local_of(node)
        return local.size if local else None

    def _entry_sizes(self, node: Expr) -> _Entries | None:
        known = self._entries.get(node.id)
        if known is not None:
            return known
        local = self._local_of(node)
        return local.entries if local else None

    def _join_entries(self, node: Expr, left: Expr, right: Expr) -> None:
        """The result has elements of both."""
        one, other = self._entry_sizes(left), self._entry_sizes(right)
        if one is not None and other is not None:
            self._entries[node.id] = _Entries(one.kind, one.key | other.key, one.value | other.value)

    def _adopt(self, node: Expr, source: Expr) -> None:
        """A node evaluates to what another one does."""
        size, entries = self._size(source), self._entry_sizes(source)
        if size is not None:
            self._sizes[node.id] = size
        if entries is not None:
            self._entries[node.id] = entries


def _is_bind(node: Comprehension) -> bool:
    """Whether this is the expansion of cel.bind, optMap or optFlatMap: an empty range, and the result uses the variable."""
    return (
        isinstance(node.iter_range, ListExpr)
        and not node.iter_range.elements
        and isinstance(node.loop_condition, Literal)
        and node.loop_condition.value is False
        and node.accu_var != "__result__"
    )


def _literal_size(node: Expr) -> SizeEstimate | None:
    match node:
        case Literal():
            return exactly(len(node.value)) if isinstance(node.value, (str, bytes)) else ONE
        case ListExpr():
            return exactly(len(node.elements))
        case MapExpr():
            return exactly(len(node.entries))
        case _:
            return None


def _is_scalar(declared: CelType) -> bool:
    while declared.kind is Kind.OPAQUE and declared.name == "optional_type":
        declared = declared.params[0]
    return declared.kind in _SCALAR_KINDS
