"""What an expression may refer to: variables, functions, macros, types, and the options of the language.

`device_environment` is Kubernetes' environment for device selectors. Upstream has two variants: new
expressions get only what the feature gates and the compatibility version allow, stored ones everything ever
allowed. `kubernetes_environment` has the same functions for any other variables.
`standard_environment` is plain CEL with every extension library, for the conformance suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from allot.core.cel.checking import declarations as libraries
from allot.core.cel.checking.signatures import merged
from allot.core.cel.checking.standard_declarations import STANDARD, STANDARD_TYPES
from allot.core.cel.checking.types import (
    ANY,
    BOOL,
    CIDR,
    DYN,
    IP,
    QUANTITY,
    STRING,
    CelType,
    Function,
    Kind,
    map_of,
    optional_of,
)
from allot.core.cel.syntax.macros import (
    BINDING_MACROS,
    BLOCK_MACROS,
    KUBERNETES_MACROS,
    LIST_MACROS,
    MATH_MACROS,
    OPTIONAL_MACROS,
    STANDARD_MACROS,
    TWO_VARIABLE_MACROS,
    MacroSet,
)

DEVICE_TYPE = CelType(Kind.OBJECT, "kubernetes.DRADevice")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the parser and the checker need to know apart from the expression."""

    variables: Mapping[str, CelType]
    functions: Mapping[str, Function]
    macros: MacroSet
    # Names that denote a type when used as an expression, such as int.
    types: Mapping[str, CelType]
    # Fields of object types.
    objects: Mapping[str, Mapping[str, CelType]] = {}
    # Object types that expressions may construct, including nested ones: Object and Object.spec.
    made_types: frozenset[str] = frozenset()
    # Names are looked up in this namespace and its parents.
    container: str = ""
    optional_syntax: bool = True
    # Elements of a list literal, keys and values of a map literal must have one type.
    homogeneous_literals: bool = False
    # Literal arguments are checked: regular expressions, durations, timestamps, formats.
    literal_validation: bool = False


@cache
def device_environment(*, list_type_attributes: bool, consumable_capacity: bool, stored: bool) -> Environment:
    """Kubernetes' environment for device selectors. Stored expressions get every declaration, whatever the gates."""
    with_lists = list_type_attributes or stored
    with_multiple = consumable_capacity or stored
    attribute = DYN if with_lists else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if with_multiple:
        fields["allowMultipleAllocations"] = BOOL
    return Environment(
        variables={"device": DEVICE_TYPE},
        functions=_kubernetes_functions(stored, with_lists),
        macros=KUBERNETES_MACROS,
        types={**STANDARD_TYPES, "optional_type": optional_of(DYN), "net.IP": IP, "net.CIDR": CIDR},
        objects={DEVICE_TYPE.name: fields},
        homogeneous_literals=True,
        literal_validation=True,
    )


@cache
def _kubernetes_functions(stored: bool, includes: bool) -> Mapping[str, Function]:
    # A stock 1.37 server is compatible with 1.36: new expressions get the older list library, which lacks includes().
    return merged(
        STANDARD,
        libraries.URLS,
        libraries.REGEX,
        () if stored else libraries.KUBERNETES_LISTS,
        libraries.AUTHORIZER,
        libraries.OPTIONAL,
        libraries.QUANTITIES,
        libraries.STRINGS_V2,
        libraries.SETS,
        libraries.IPS,
        libraries.CIDRS,
        libraries.FORMATS,
        libraries.AUTHORIZER_SELECTORS,
        libraries.TWO_VARIABLE_COMPREHENSIONS,
        libraries.SEMVERS,
        libraries.LISTS,
        libraries.KUBERNETES_LISTS_V1 if stored else (),
        libraries.INCLUDES if includes else (),
    )


def kubernetes_environment(
    variables: Mapping[str, CelType],
    objects: Mapping[str, Mapping[str, CelType]] | None = None,
    *,
    stored: bool = False,
) -> Environment:
    """Kubernetes' environment for expressions over any variables, new or stored ones. objects: fields of object types, by name."""
    return Environment(
        variables=variables,
        functions=_kubernetes_functions(stored, stored),
        macros=KUBERNETES_MACROS,
        types={**STANDARD_TYPES, "optional_type": optional_of(DYN), "net.IP": IP, "net.CIDR": CIDR},
        objects=objects or {},
        homogeneous_literals=True,
        literal_validation=True,
    )


# Slots of a block are variables of unknown type.
_BLOCK_SLOTS = {f"@index{number}": DYN for number in range(64)}


def standard_environment(
    *,
    variables: Mapping[str, CelType] | None = None,
    functions: tuple[Function, ...] = (),
    objects: Mapping[str, Mapping[str, CelType]] | None = None,
    container: str = "",
) -> Environment:
    """CEL with all extension libraries that need no protocol buffers."""
    objects = objects or {}
    return Environment(
        variables={**_BLOCK_SLOTS, **(variables or {})},
        functions=merged(_standard_functions().values(), functions) if functions else _standard_functions(),
        macros=_STANDARD_MACROS,
        types={
            **STANDARD_TYPES,
            "optional_type": optional_of(DYN),
            "net.IP": IP,
            "net.CIDR": CIDR,
            **{name: CelType(Kind.OBJECT, name) for name in objects},
        },
        objects=objects,
        container=container,
    )


@cache
def _standard_functions() -> Mapping[str, Function]:
    return merged(
        STANDARD,
        libraries.OPTIONAL,
        libraries.STRINGS,
        libraries.SETS,
        libraries.LISTS,
        libraries.TWO_VARIABLE_COMPREHENSIONS,
        libraries.BLOCK,
        libraries.ENCODERS,
        libraries.MATH,
        libraries.IPS,
        libraries.CIDRS,
        libraries.CIDR_MASK,
    )


_STANDARD_MACROS: MacroSet = {
    **STANDARD_MACROS,
    **OPTIONAL_MACROS,
    **BINDING_MACROS,
    **TWO_VARIABLE_MACROS,
    **LIST_MACROS,
    **MATH_MACROS,
    **BLOCK_MACROS,
}
