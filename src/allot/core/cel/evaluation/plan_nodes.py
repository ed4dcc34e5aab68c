"""The nodes of an evaluation plan. Data only; built by `plan`, used by `interpret` and `generate`."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.cel.costs.runtime import call_price
from allot.core.cel.data.values import Value
from allot.core.cel.library.table import Binding


class Node:
    """Something to evaluate. `id` names its value to the cost tracker; `height` counts the levels below."""

    __slots__ = ("height", "id")

    id: int
    height: int


def _height(children: Sequence[Node]) -> int:
    return 1 + max((child.height for child in children), default=0)


class Constant(Node):
    """A value known at compile time."""

    __slots__ = ("value",)

    def __init__(self, node_id: int, value: Value) -> None:
        self.id = node_id
        self.height = 1
        self.value = value


class Variable:
    """A chain that begins with a variable; a leading dot means the outermost one of that name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Operand:
    """A chain that begins with the value of another node."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


class Conditional:
    """A chain that is one of two chains."""

    __slots__ = ("condition", "falsy", "truthy")

    def __init__(self, condition: Node, truthy: Chain, falsy: Chain) -> None:
        self.condition = condition
        self.truthy = truthy
        self.falsy = falsy


Source = Variable | Operand | Conditional


class Qualifier:
    """One selection or index: by a constant key, or by the value of a node. `test` asks for presence only."""

    __slots__ = ("id", "index", "key", "optional", "test")

    def __init__(
        self, node_id: int, *, key: Value = None, index: Node | None = None, optional: bool = False, test: bool = False
    ) -> None:
        self.id = node_id
        self.key = key
        self.index = index
        self.optional = optional
        self.test = test


class Chain(Node):
    """A variable, a value or a conditional, with the selections and indices behind it."""

    __slots__ = ("base_id", "qualifiers", "source", "test")

    def __init__(
        self, node_id: int, source: Source, qualifiers: tuple[Qualifier, ...] = (), test: bool = False
    ) -> None:
        self.base_id = node_id
        self.source = source
        self.qualifiers = qualifiers
        # Set on has(): the chain as a whole is then not charged.
        self.test = test
        self.id = self._own_id()
        self.height = 1 + max(
            _source_height(source), max((item.index.height for item in qualifiers if item.index), default=0)
        )

    def _own_id(self) -> int:
        if isinstance(self.source, Conditional):
            truthy, falsy = self.source.truthy.id, self.source.falsy.id
            return truthy if truthy == falsy else self.base_id
        return self.qualifiers[-1].id if self.qualifiers else self.base_id

    def extended(self, qualifier: Qualifier, test: bool) -> Chain:
        """This chain with one more selection, which a conditional hands to its branches."""
        source = self.source
        if isinstance(source, Conditional):
            branches = Conditional(
                source.condition, source.truthy.extended(qualifier, False), source.falsy.extended(qualifier, False)
            )
            return Chain(self.base_id, branches, (), test)
        return Chain(self.base_id, source, (*self.qualifiers, qualifier), test)


def _source_height(source: Source) -> int:
    if isinstance(source, Operand):
        return source.node.height
    if isinstance(source, Conditional):
        return _height((source.condition, source.truthy, source.falsy))
    return 0


def chain_of(node: Node) -> Chain:
    """The node as a chain."""
    return node if isinstance(node, Chain) else Chain(node.id, Operand(node))


class Call(Node):
    """A call of a function; overload_id is empty when several overloads remain."""

    __slots__ = ("arguments", "binding", "function", "overload_id", "price")

    def __init__(
        self, node_id: int, function: str, overload_id: str, arguments: tuple[Node, ...], binding: Binding | None
    ) -> None:
        self.id = node_id
        self.height = _height(arguments)
        self.function = function
        self.overload_id = overload_id
        self.arguments = arguments
        self.binding = binding
        self.price = call_price(function, overload_id)


class _Logical(Node):
    __slots__ = ("terms",)

    def __init__(self, node_id: int, terms: tuple[Node, ...]) -> None:
        self.id = node_id
        self.height = _height(terms)
        self.terms = terms


class And(_Logical):
    """`&&`"""

    __slots__ = ()


class Or(_Logical):
    """`||`"""

    __slots__ = ()


class Equal(Node):
    """`==` and, negated, `!=`."""

    __slots__ = ("left", "negated", "right")

    def __init__(self, node_id: int, left: Node, right: Node, negated: bool) -> None:
        self.id = node_id
        self.height = _height((left, right))
        self.left = left
        self.right = right
        self.negated = negated


class Membership(Node):
    """`in` with a list of constants."""

    __slots__ = ("elements", "wanted")

    def __init__(self, node_id: int, wanted: Node, elements: tuple[Value, ...]) -> None:
        self.id = node_id
        self.height = 1 + wanted.height
        self.wanted = wanted
        self.elements = elements


class OptionalOr(Node):
    """`a.or(b)` and, unwrapped, `a.orValue(b)`: b is evaluated when a is absent."""

    __slots__ = ("left", "right", "unwrapped")

    def __init__(self, node_id: int, left: Node, right: Node, unwrapped: bool) -> None:
        self.id = node_id
        self.height = _height((left, right))
        self.left = left
        self.right = right
        self.unwrapped = unwrapped


class ListNode(Node):
    """A list literal; `optional` are the positions written with `?`."""

    __slots__ = ("elements", "optional")

    def __init__(self, node_id: int, elements: tuple[Node, ...], optional: frozenset[int]) -> None:
        self.id = node_id
        self.height = _height(elements)
        self.elements = elements
        self.optional = optional


class MapNode(Node):
    """A map literal."""

    __slots__ = ("keys", "optional", "values")

    def __init__(
        self, node_id: int, keys: tuple[Node, ...], values: tuple[Node, ...], optional: tuple[bool, ...]
    ) -> None:
        self.id = node_id
        self.height = _height((*keys, *values))
        self.keys = keys
        self.values = values
        self.optional = optional


class MessageNode(Node):
    """A message literal."""

    __slots__ = ("names", "optional", "type_name", "values")

    def __init__(
        self,
        node_id: int,
        type_name: str,
        names: tuple[str, ...],
        values: tuple[Node, ...],
        optional: tuple[bool, ...],
    ) -> None:
        self.id = node_id
        self.height = _height(values)
        self.type_name = type_name
        self.names = names
        self.values = values
        self.optional = optional


class Fold(Node):
    """A comprehension. The initial value is computed when it is first read, in the scope outside."""

    __slots__ = ("accu_init", "accu_var", "condition", "iter_range", "iter_var", "iter_var2", "result", "step")

    def __init__(
        self,
        node_id: int,
        *,
        iter_range: Node,
        iter_var: str,
        iter_var2: str,
        accu_var: str,
        accu_init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        self.id = node_id
        self.height = _height((iter_range, accu_init, condition, step, result))
        self.iter_range = iter_range
        self.iter_var = iter_var
        self.iter_var2 = iter_var2
        self.accu_var = accu_var
        self.accu_init = accu_init
        self.condition = condition
        self.step = step
        self.result = result

    @property
    def is_binding(self) -> bool:
        """Whether this is cel.bind or the like: a loop over nothing that only names a value."""
        return isinstance(self.iter_range, Constant) and not self.iter_range.value


class Block(Node):
    """cel.block: named slots, each computed when first read."""

    __slots__ = ("result", "slots")

    def __init__(self, slots: tuple[Node, ...], result: Node) -> None:
        self.id = result.id
        self.height = _height((*slots, result))
        self.slots = slots
        self.result = result
