"""When values are equal and how they order.

Equality follows cel-go exactly, even where that is odd: comparing a version or a quantity with something else
is an error when it stands on the left and false when it stands on the right.
"""

from __future__ import annotations

from typing import Final

from allot.core.cel.data.values import (
    CIDR,
    COST_EXCEEDED,
    IP,
    LIST_CLASSES,
    MAP_CLASSES,
    MISSING,
    NO_SUCH_OVERLOAD,
    NUMBER_CLASSES,
    URL,
    CelError,
    ComputedQuantity,
    ConcatList,
    Duration,
    EvaluationAborted,
    Message,
    NamedFormat,
    Optional,
    Timestamp,
    Value,
    decoded_key,
    find,
)
from allot.core.cel.syntax.ast import UInt
from allot.core.quantity import Quantity
from allot.core.semver import Semver

# A comparison charges only the elements of the outermost list or map. Nested ones are free, and there are very
# many if lists contain the same list many times over; a loop can compare a hundred thousand times. Hence a
# bound that suffices to compare whole devices, which have at most 176.
NESTED_MAX: Final = 200


# --- numbers ---


def _double_int(double: float, integer: int) -> int:
    """Order of a double and an integer: by range outside the integer's range, as doubles inside it, which loses digits."""
    low, high = (0.0, 2.0**64) if integer.__class__ is UInt else (-(2.0**63), 2.0**63)
    if double < low:
        return -1
    if double > high:
        return 1
    as_double = float(integer)
    return (double > as_double) - (double < as_double)


def compare_numbers(left: float, right: float) -> int:
    """-1, 0 or 1 for int, uint and double in any mix; NaN must have been excluded."""
    if left.__class__ is float:
        if right.__class__ is float:
            return (left > right) - (left < right)
        return _double_int(left, right)  # type: ignore[arg-type]
    if right.__class__ is float:
        return -_double_int(right, left)  # type: ignore[arg-type]
    return (left > right) - (left < right)


# --- equality ---


class _Work:
    """Counts the elements of nested collections in one comparison."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = NESTED_MAX

    def entered(self, elements: int) -> _Work:
        self.left -= elements
        if self.left < 0:
            raise EvaluationAborted(COST_EXCEEDED)
        return self


def equal(left: Value, right: Value, work: _Work | None = None) -> bool | None:
    """Whether two values are equal; None where cel-go returns "no such overload"."""
    if left is None or right is None:
        return left is right
    return own_equal(left, right, work)


def own_equal(left: Value, right: Value, work: _Work | None = None) -> bool | None:
    """Equality as defined by the left value's class, which membership tests use."""
    left_class, right_class = left.__class__, right.__class__
    if left_class is str or left_class is bool or left_class is bytes:
        return right_class is left_class and bool(left == right)
    if left_class in NUMBER_CLASSES:
        return right_class in NUMBER_CLASSES and _numbers_equal(left, right)
    if left_class in LIST_CLASSES:
        return right_class in LIST_CLASSES and _lists_equal(left, right, work)
    if left_class in MAP_CLASSES:
        return right_class in MAP_CLASSES and _maps_equal(left, right, work)
    if left_class is Quantity or left_class is ComputedQuantity:
        return bool(left == right) if right_class is Quantity else None
    if left_class is Semver or left_class is IP or left_class is CIDR or left_class is URL or left_class is NamedFormat:
        return bool(left == right) if right_class is left_class else None
    if left is None:
        return right is None
    if left_class is Timestamp:
        return right_class is Timestamp and left.nanoseconds == right.nanoseconds
    if left_class is Message:
        return right_class is Message and left.name == right.name and _maps_equal(left.fields, right.fields, work)
    if left_class is Optional:
        return right_class is Optional and _optionals_equal(left, right, work)
    return right_class is left_class and bool(left == right)


def is_equal(left: Value, right: Value) -> bool:
    """Whether two values are equal, an error counting as no."""
    return equal(left, right) is True


def equals(left: Value, right: Value) -> bool:
    """The `==` operator."""
    result = equal(left, right)
    if result is None:
        raise CelError(NO_SUCH_OVERLOAD)
    return result


def _numbers_equal(left: float, right: float) -> bool:
    if left.__class__ is not float and right.__class__ is not float:
        return left == right
    if left != left or right != right:
        return False
    return compare_numbers(left, right) == 0


def _lists_equal(left: Value, right: Value, work: _Work | None) -> bool | None:
    if len(left) != len(right):
        return False
    work = _Work() if work is None else work.entered(len(left))
    failed = False
    for mine, other in zip(left, right, strict=True):
        same = equal(mine, other, work)
        if same is False:
            return False
        failed = failed or same is None
    # Only a concatenated list reports elements that cannot be compared; any other treats them as equal.
    return None if failed and left.__class__ is ConcatList else True


def _maps_equal(left: Value, right: Value, work: _Work | None) -> bool:
    if len(left) != len(right):
        return False
    work = _Work() if work is None else work.entered(len(left))
    for encoded, mine in left.items():
        other = find(right, decoded_key(encoded))
        if other is MISSING or equal(mine, other, work) is False:
            return False
    return True


def _optionals_equal(left: Optional, right: Optional, work: _Work | None) -> bool | None:
    if not left.present or not right.present:
        return left.present == right.present
    return own_equal(left.value, right.value, work)


# --- order ---

COMPARABLE: Final[frozenset[type]] = frozenset((bool, int, UInt, float, str, bytes, Duration, Timestamp))


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; left must be of a comparable class."""
    left_class, right_class = left.__class__, right.__class__
    if left_class in NUMBER_CLASSES:
        if left != left:
            raise CelError("NaN values cannot be ordered")
        if right_class not in NUMBER_CLASSES:
            raise CelError(NO_SUCH_OVERLOAD)
        if right != right:
            raise CelError("NaN values cannot be ordered")
        return compare_numbers(left, right)
    if right_class is not left_class:
        raise CelError(NO_SUCH_OVERLOAD)
    if left_class is str:
        # Go orders strings by bytes; code points order alike.
        return int(left > right) - int(left < right)
    if left_class is Timestamp:
        left, right = left.nanoseconds, right.nanoseconds
    return int(left > right) - int(left < right)


# --- membership ---


def contains(elements: Value, wanted: Value) -> bool:
    """Whether a list has an element equal to the wanted value."""
    return any(own_equal(wanted, element) is True for element in elements)
