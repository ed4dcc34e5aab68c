"""Converts CEL selectors: of 1.30, where attributes were maps by type, and of authors who compare sizes and versions as text.

Edits the text, so that an expression keeps its layout. The syntax tree determines the edits; the result must
compile, and an expression that does not is reported and left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allot.core.advice.convert.changes import Confidence
from allot.core.advice.convert.drivers import Driver, Type, driver_named, identifier
from allot.core.advice.typography import has_typographic_quotes, with_plain_quotes
from allot.core.cel.selector import EnvironmentOptions, SelectorCompileError, compile_selector
from allot.core.cel.syntax import lexer
from allot.core.cel.syntax.ast import Call, Expr, Ident, Literal, Parsed, Select
from allot.core.cel.syntax.builder import children
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from allot.core.quantity import Quantity, QuantityError
from allot.core.semver import Semver, SemverError

# With every gate that extends the language.
_OPTIONS = EnvironmentOptions(list_type_attributes=True, consumable_capacity=True, stored=True)
_RELATIONS = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_ORDERED = _RELATIONS - {"_==_", "_!=_"}
_OLD_TYPES = frozenset(("string", "bool", "int", "version", "quantity", "intslice", "stringslice"))
_CONVERSIONS = frozenset(("quantity", "string", "int", "bool", "version", "semver"))
_SMALLEST_BYTES = 1024 * 1024


class Note(msgspec.Struct, frozen=True):
    """The reason for a change to an expression, and its confidence."""

    why: str
    confidence: Confidence


class Translated(msgspec.Struct, frozen=True):
    """A converted expression, its changes, and its problems."""

    text: str
    changes: tuple[Note, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def confidence(self) -> Confidence:
        """The confidence of all changes together."""
        given = [note.confidence for note in self.changes]
        return max(given, key=lambda confidence: confidence.doubt, default=Confidence.CERTAIN)

    @property
    def why(self) -> str:
        """The reasons of all changes."""
        return "; ".join(dict.fromkeys(note.why for note in self.changes))


def translate(text: str, driver_name: str | None, *, was_1_30: bool = False) -> Translated:
    """An expression in current CEL. driver: the owner of unqualified names, if known."""
    changes: list[Note] = []
    if has_typographic_quotes(text) and not _parses(text) and _parses(with_plain_quotes(text)):
        text = with_plain_quotes(text)
        changes.append(Note("typographic quotes are not quotes in CEL", Confidence.CERTAIN))
    try:
        parsed = parse(text)
    except CelCompileError as error:
        return Translated(text, tuple(changes), (f"not a CEL expression: {error}",))
    edits = _Edits(parsed, driver_name, was_1_30)
    edits.look_at(parsed.root)
    result = edits.applied()
    changes += edits.notes
    problems = list(dict.fromkeys(edits.problems))
    if not problems:
        problems += [f"does not compile: {problem}" for problem in _compile_problem(result)]
    return Translated(result, tuple(changes), tuple(problems))


def drivers_in(text: str) -> tuple[str, ...]:
    """Names that an expression compares `device.driver` with for equality."""
    try:
        parsed = parse(text)
    except CelCompileError:
        return ()
    found: list[str] = []
    for node in _walk(parsed.root):
        if isinstance(node, Call) and node.function == "_==_":
            for one, other in (node.args, node.args[::-1]):
                if _is_member(one, "device", "driver") and isinstance(other, Literal) and isinstance(other.value, str):
                    found.append(other.value)
    return tuple(dict.fromkeys(found))


def quoted(text: str) -> str:
    """A CEL string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def member(driver: str, name: str, *, capacity: bool) -> str:
    """A device's attribute or capacity."""
    return f"device.{'capacity' if capacity else 'attributes'}[{quoted(driver)}].{name}"


def version_text(text: str) -> str | None:
    """A version as `semver()` accepts it, from one that may lack parts; None if it is not a version."""
    plain = text.strip().removeprefix("v")
    for candidate in (plain, f"{plain}.0", f"{plain}.0.0"):
        try:
            Semver.parse(candidate)
        except SemverError:
            continue
        return candidate
    return None


def _parses(text: str) -> bool:
    try:
        parse(text)
    except CelCompileError:
        return False
    return True


def _compile_problem(text: str) -> Iterator[str]:
    try:
        compiled = compile_selector(text, _OPTIONS)
    except SelectorCompileError as error:
        yield error.message
        return
    if compiled.output_type not in ("bool", "dyn", "any"):
        yield f"the result is {compiled.output_type}: expected bool"


def _walk(root: Expr) -> Iterator[Expr]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))


def _is_member(node: Expr, ident: str, field: str) -> bool:
    return (
        isinstance(node, Select)
        and node.field == field
        and isinstance(node.operand, Ident)
        and node.operand.name == ident
    )


def _text_of(node: Expr) -> str | None:
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else None


class _Access(msgspec.Struct, frozen=True):
    """An attribute or capacity that an expression reads: where its text is, and what it should be."""

    start: int
    end: int
    text: str
    name: str
    type: Type | None


class _Edits:
    """The edits of one expression, gathered from its tree."""

    def __init__(self, parsed: Parsed, driver_name: str | None, was_1_30: bool) -> None:
        self.parsed = parsed
        self.driver_name = driver_name
        self.was_1_30 = was_1_30
        self.notes: list[Note] = []
        self.problems: list[str] = []
        self._edits: dict[tuple[int, int], str] = {}
        scanned = lexer.scan(parsed.source)
        assert scanned is not None, "an expression that parses consists of tokens"
        self._kinds, self._texts, self._starts = scanned
        self._index = {start: index for index, start in enumerate(self._starts)}

    def applied(self) -> str:
        """The text with all edits."""
        text = self.parsed.source
        for (start, end), new in sorted(self._edits.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def look_at(self, root: Expr) -> None:
        """Collects the edits; the children of an edited node are skipped."""
        pending = [root]
        while pending:
            node = pending.pop()
            if not (isinstance(node, Call) and (self._comparison(node) or self._membership(node))) and not self._lone(
                node
            ):
                pending.extend(reversed(children(node)))

    # --- what is edited ---

    def _comparison(self, node: Call) -> bool:
        """`memory >= "16Gi"`, either way round."""
        if node.function not in _RELATIONS or len(node.args) != 2:
            return False
        for left, right in (node.args, node.args[::-1]):
            if not isinstance(right, Literal):
                continue
            access = self._access(left, right if node.function in _ORDERED else None)
            if access is not None:
                return self._compare(access, right)
        return False

    def _compare(self, access: _Access, literal: Literal) -> bool:
        new = self._operand(access, literal)
        if new is None:
            self._replace(access)
            return True
        self._edits[access.start, access.end] = f"{access.text}.compareTo({new})"
        self._edits[self._span(literal)] = "0"
        return True

    def _operand(self, access: _Access, literal: Literal) -> str | None:
        """The argument of `compareTo`; None if the comparison needs no change."""
        value = literal.value
        if access.type is Type.QUANTITY and isinstance(value, str):
            if not _is_quantity(value):
                self.problems.append(f"{access.name} is a capacity, but {value!r} is not a quantity")
                return None
            # No other comparison between a capacity and a string makes sense.
            was_capacity = access.text == self.parsed.source[access.start : access.end]
            sure = Confidence.CERTAIN if was_capacity else Confidence.LIKELY
            self.notes.append(Note("CEL compares strings, not sizes; capacities are quantities", sure))
            return f"quantity({quoted(value)})"
        if access.type is Type.QUANTITY and isinstance(value, int) and not isinstance(value, bool):
            if value < _SMALLEST_BYTES and access.name.lower().endswith("memory"):
                self.problems.append(
                    f"{access.name} is a capacity in bytes and is compared with {value}: write a unit, such as {value}Gi"
                )
                return None
            self.notes.append(Note("a capacity is a quantity, which compares with quantities", Confidence.LIKELY))
            return f'quantity("{Quantity.from_int(value)}")'
        if access.type is Type.VERSION and isinstance(value, str):
            version = version_text(value)
            if version is None:
                self.problems.append(f"{access.name} is a version, but {value!r} is not")
                return None
            self.notes.append(Note("CEL compares strings, not versions", Confidence.LIKELY))
            return f"semver({quoted(version)})"
        return None

    def _membership(self, node: Call) -> bool:
        """`"x" in attributes.string`, of 1.30."""
        if node.function != "@in" or len(node.args) != 2:
            return False
        name, container = _text_of(node.args[0]), node.args[1]
        old_type = _old_map_type(container)
        if name is None or old_type is None:
            return False
        published = self._published(name, old_type)
        if published is None:
            return True
        kind = "capacity" if old_type == "quantity" else "attributes"
        self._edits[self._span(node.args[0])] = quoted(published)
        self._edits[self._span(container)] = f"device.{kind}[{quoted(self._driver.name)}]"
        self.notes.append(Note("attributes are no longer in maps by type (since 1.31)", Confidence.CERTAIN))
        return True

    def _lone(self, node: Expr) -> bool:
        """An access that is not compared with a literal."""
        access = self._access(node, None)
        if access is None:
            if isinstance(node, Ident) and node.name == "attributes" and self.was_1_30:
                self.problems.append("uses the map `attributes` of 1.30 as a whole, which has no equivalent")
            return False
        self._replace(access)
        return True

    def _replace(self, access: _Access) -> None:
        if self.parsed.source[access.start : access.end] != access.text:
            self._edits[access.start, access.end] = access.text

    # --- reading of attributes ---

    @property
    def _driver(self) -> Driver:
        assert self.driver_name is not None, "asked for the driver of an expression that has none"
        return driver_named(self.driver_name)

    def _access(self, node: Expr, compared: Literal | None) -> _Access | None:
        """The corrected access; None for anything else, and for correct accesses."""
        inner, conversions = _without_conversions(node)
        found = self._of_1_30(inner) or self._unqualified(inner, conversions) or self._qualified(inner, compared)
        if found is None:
            return None
        if conversions:
            self.notes.append(
                Note(
                    f"{', '.join(f'{name}()' for name in conversions)} of an attribute does not exist",
                    Confidence.LIKELY,
                )
            )
        start, end = self._span(node)
        return msgspec.structs.replace(found, start=start, end=end)

    def _of_1_30(self, node: Expr) -> _Access | None:
        """`attributes.quantity["memory"]`."""
        name, container = _indexed(node)
        old_type = _old_map_type(container)
        if name is None or old_type is None:
            return None
        published = self._published(name, old_type)
        if published is None:
            return None
        self.notes.append(Note("attributes are no longer in maps by type (since 1.31)", Confidence.CERTAIN))
        # In 1.30 quantities compared only with quantities, and versions only with versions.
        return self._as_access(published, old_type == "quantity", None)

    def _unqualified(self, node: Expr, conversions: tuple[str, ...]) -> _Access | None:
        """`device.attributes["memory"]`, which lacks the driver and names the attribute instead."""
        name, container = _indexed(node)
        if name is None or not _is_device_map(container) or "." in name or "/" in name:
            return None
        if not conversions and (self.driver_name is None or not self._driver.attributes):
            return None
        published = self._published(name, None)
        if published is None:
            return None
        self.notes.append(
            Note(f"attributes are found by driver, then by name: {self.driver_name}, {published}", Confidence.LIKELY)
        )
        is_capacity = published in self._driver.capacities or "quantity" in conversions
        type_ = Type.QUANTITY if is_capacity else self._driver.attributes.get(published)
        return self._as_access(published, is_capacity, type_)

    def _qualified(self, node: Expr, compared: Literal | None) -> _Access | None:
        """`device.attributes["gpu.nvidia.com"].memory`, right or in the wrong map."""
        if not isinstance(node, Select) or node.test_only:
            return None
        domain, container = _indexed(node.operand)
        if domain is None or not _is_device_map(container):
            return None
        assert isinstance(container, Select)
        driver = driver_named(domain)
        is_capacity = container.field == "capacity"
        if not is_capacity and self._is_capacity(driver, node.field, compared):
            self.notes.append(
                Note(f"{node.field} is a capacity in driver {domain}", Confidence.CERTAIN)
                if node.field in driver.capacities
                else Note(f"sizes such as {node.field} are capacities", Confidence.LIKELY)
            )
            is_capacity = True
        type_ = Type.QUANTITY if is_capacity else driver.attributes.get(node.field)
        start, end = self._span(node)
        text = self.parsed.source[start:end]
        if is_capacity != (container.field == "capacity"):
            text = member(domain, node.field, capacity=is_capacity)
        return _Access(start, end, text, node.field, type_)

    def _is_capacity(self, driver: Driver, name: str, compared: Literal | None) -> bool:
        if name in driver.attributes:
            return False
        if name in driver.capacities:
            return True
        value = compared.value if compared is not None else None
        return not driver.is_complete and isinstance(value, str) and _is_size(value)

    def _published(self, name: str, old_type: str | None) -> str | None:
        """The name that the driver publishes; None, with a problem, if it is unknown."""
        if old_type is not None and old_type not in _OLD_TYPES:
            self.problems.append(
                f"attributes.{old_type} did not exist in 1.30 either: expected {', '.join(sorted(_OLD_TYPES))}"
            )
            return None
        if self.driver_name is None:
            self.problems.append(f"attribute {name!r} belongs to an unknown driver")
            return None
        published = self._driver.attribute_named(name)
        if published is None:
            self.problems.append(
                f"attribute {name!r} is not published by driver {self.driver_name}, which offers: {self._driver.offers}"
            )
        return published

    def _as_access(self, name: str, is_capacity: bool, type_: Type | None) -> _Access:
        assert self.driver_name is not None, "a published name is of a driver"
        text = member(self.driver_name, identifier(name), capacity=is_capacity)
        return _Access(0, 0, text, name, type_)

    # --- spans ---

    def _span(self, node: Expr) -> tuple[int, int]:
        """Where the text of a chain of members or of a literal is."""
        first: Expr = node
        while True:
            if isinstance(first, Select):
                first = first.operand
            elif isinstance(first, Call) and first.target is not None:
                first = first.target
            elif isinstance(first, Call) and first.function in ("_[_]", "_[?_]"):
                first = first.args[0]
            else:
                break
        return self.parsed.offsets[first.id], self._end(node)

    def _end(self, node: Expr) -> int:
        index = self._index[self.parsed.offsets[node.id]]
        if isinstance(node, Select):
            index += 1
        elif isinstance(node, Call):
            index = self._closing(index)
        elif isinstance(node, Literal) and self._texts[index] == "-":
            index += 1
        return self._starts[index] + len(self._texts[index])

    def _closing(self, index: int) -> int:
        """The bracket that closes the one at the index."""
        depth = 0
        for position in range(index, len(self._kinds)):
            if self._kinds[position] in ("(", "[", "{"):
                depth += 1
            elif self._kinds[position] in (")", "]", "}"):
                depth -= 1
                if depth == 0:
                    return position
        raise AssertionError("a bracket of an expression that parses is closed")


def _without_conversions(node: Expr) -> tuple[Expr, tuple[str, ...]]:
    """The expression without `.quantity()`, `.value()` and similar calls, which no type has."""
    names: list[str] = []
    while (
        isinstance(node, Call)
        and node.target is not None
        and not node.args
        and (node.function in _CONVERSIONS or (node.function == "value" and not names))
    ):
        names.insert(0, node.function)
        node = node.target
    return node, tuple(names)


def _indexed(node: Expr) -> tuple[str | None, Expr]:
    """Key and map of `map["key"]`."""
    if isinstance(node, Call) and node.function == "_[_]" and len(node.args) == 2:
        return _text_of(node.args[1]), node.args[0]
    return None, node


def _old_map_type(node: Expr) -> str | None:
    """The type of a 1.30 attribute map: `attributes.string`."""
    if isinstance(node, Select) and isinstance(node.operand, Ident) and node.operand.name == "attributes":
        return node.field
    return None


def _is_device_map(node: Expr) -> bool:
    return _is_member(node, "device", "attributes") or _is_member(node, "device", "capacity")


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _is_size(text: str) -> bool:
    """Whether a text is an amount with a size unit."""
    return _is_quantity(text) and text[-1:] in "iKMGTPEk" and any(character.isdigit() for character in text)
