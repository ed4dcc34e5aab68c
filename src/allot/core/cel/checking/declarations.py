"""The functions of CEL's extension libraries and of Kubernetes' own, with upstream's overload ids.

Tables only: one constant per library, in the notation of `signatures`. The functions are implemented elsewhere, by
overload id; `environment` chooses the libraries.
"""

from __future__ import annotations

from allot.core.cel.checking.signatures import Library, functions

OPTIONAL = functions(
    {
        "optional.of": {"optional_of": "V -> optional(V)"},
        "optional.ofNonZeroValue": {"optional_ofNonZeroValue": "V -> optional(V)"},
        "optional.none": {"optional_none": "-> optional(V)"},
        "value": {"optional_value": "optional(V).() -> V"},
        "hasValue": {"optional_hasValue": "optional(V).() -> bool"},
        "or": {"optional_or_optional": "optional(V).(optional(V)) -> optional(V)"},
        "orValue": {"optional_orValue_value": "optional(V).(V) -> V"},
        "_?._": {"select_optional_field": "dyn, string -> optional(V)"},
        "_[?_]": {
            "list_optindex_optional_int": "list(V), int -> optional(V)",
            "optional_list_optindex_optional_int": "optional(list(V)), int -> optional(V)",
            "map_optindex_optional_value": "map(K, V), K -> optional(V)",
            "optional_map_optindex_optional_value": "optional(map(K, V)), K -> optional(V)",
        },
        "_[_]": {
            "optional_list_index_int": "optional(list(V)), int -> optional(V)",
            "optional_map_index_value": "optional(map(K, V)), K -> optional(V)",
        },
        "last": {"list_last": "list(V).() -> optional(V)"},
        "first": {"list_first": "list(V).() -> optional(V)"},
        "optional.unwrap": {"optional_unwrap": "list(optional(V)) -> list(V)"},
        "unwrapOpt": {"optional_unwrapOpt": "list(optional(V)).() -> list(V)"},
    }
)

_STRINGS: Library = {
    "charAt": {"string_char_at_int": "string.(int) -> string"},
    "indexOf": {
        "string_index_of_string": "string.(string) -> int",
        "string_index_of_string_int": "string.(string, int) -> int",
    },
    "lastIndexOf": {
        "string_last_index_of_string": "string.(string) -> int",
        "string_last_index_of_string_int": "string.(string, int) -> int",
    },
    "lowerAscii": {"string_lower_ascii": "string.() -> string"},
    "replace": {
        "string_replace_string_string": "string.(string, string) -> string",
        "string_replace_string_string_int": "string.(string, string, int) -> string",
    },
    "split": {
        "string_split_string": "string.(string) -> list(string)",
        "string_split_string_int": "string.(string, int) -> list(string)",
    },
    "substring": {
        "string_substring_int": "string.(int) -> string",
        "string_substring_int_int": "string.(int, int) -> string",
    },
    "trim": {"string_trim": "string.() -> string"},
    "upperAscii": {"string_upper_ascii": "string.() -> string"},
    "format": {"string_format": "string.(list(dyn)) -> string"},
    "strings.quote": {"strings_quote": "string -> string"},
    "join": {
        "list_join": "list(string).() -> string",
        "list_join_string": "list(string).(string) -> string",
    },
}
# Kubernetes has version 2; later ones can reverse a string.
STRINGS_V2 = functions(_STRINGS)
STRINGS = functions({**_STRINGS, "reverse": {"string_reverse": "string.() -> string"}})

SETS = functions(
    {
        f"sets.{name}": {f"list_sets_{name}_list": "list(T), list(T) -> bool"}
        for name in ("contains", "equivalent", "intersects")
    }
)

# Element types that can be ordered, by their full names.
_ORDERED = {
    "int": "int",
    "uint": "uint",
    "double": "double",
    "bool": "bool",
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "string": "string",
    "bytes": "bytes",
}
LISTS = functions(
    {
        "slice": {"list_slice": "list(T).(int, int) -> list(T)"},
        "flatten": {
            "list_flatten": "list(list(T)).() -> list(T)",
            "list_flatten_int": "list(dyn).(int) -> list(dyn)",
        },
        "sort": {f"list_{name}_sort": f"list({short}).() -> list({short})" for name, short in _ORDERED.items()},
        "@sortByAssociatedKeys": {
            f"list_{name}_sortByAssociatedKeys": f"list(T).(list({short})) -> list(T)"
            for name, short in _ORDERED.items()
        },
        "lists.range": {"lists_range": "int -> list(int)"},
        "reverse": {"list_reverse": "list(T).() -> list(T)"},
        "distinct": {"list_distinct": "list(T).() -> list(T)"},
    }
)

TWO_VARIABLE_COMPREHENSIONS = functions(
    {
        "cel.@mapInsert": {
            "@mapInsert_map_key_value": "map(K, V), K, V -> map(K, V)",
            "@mapInsert_map_map": "map(K, V), map(K, V) -> map(K, V)",
        }
    }
)

BLOCK = functions({"cel.@block": {"cel_block_list": "list(dyn), T -> T"}})

ENCODERS = functions(
    {
        "base64.decode": {"base64_decode_string": "string -> bytes"},
        "base64.encode": {"base64_encode_bytes": "bytes -> string"},
        "json.encode": {"json_encode_dyn": "dyn -> string"},
    }
)


def _extremes(name: str) -> dict[str, str]:
    numbers = ("double", "int", "uint")
    return {
        **{f"math_@{name}_{number}": f"{number} -> {number}" for number in numbers},
        **{f"math_@{name}_{number}_{number}": f"{number}, {number} -> {number}" for number in numbers},
        **{
            f"math_@{name}_{left}_{right}": f"{left}, {right} -> dyn"
            for left in ("int", "double", "uint")
            for right in ("uint", "int", "double")
            if left != right
        },
        **{f"math_@{name}_list_{number}": f"list({number}) -> {number}" for number in numbers},
    }


_MATH: dict[str, dict[str, str]] = {"math.@min": _extremes("min"), "math.@max": _extremes("max")}
for _name in ("ceil", "floor", "round", "trunc"):
    _MATH[f"math.{_name}"] = {f"math_{_name}_double": "double -> double"}
for _name in ("isInf", "isNaN", "isFinite"):
    _MATH[f"math.{_name}"] = {f"math_{_name}_double": "double -> bool"}
for _name in ("abs", "sign"):
    _MATH[f"math.{_name}"] = {f"math_{_name}_{n}": f"{n} -> {n}" for n in ("double", "int", "uint")}
for _name in ("bitAnd", "bitOr", "bitXor"):
    _MATH[f"math.{_name}"] = {f"math_{_name}_{n}_{n}": f"{n}, {n} -> {n}" for n in ("int", "uint")}
_MATH["math.bitNot"] = {f"math_bitNot_{n}_{n}": f"{n} -> {n}" for n in ("int", "uint")}
for _name in ("bitShiftLeft", "bitShiftRight"):
    _MATH[f"math.{_name}"] = {f"math_{_name}_{n}_int": f"{n}, int -> {n}" for n in ("int", "uint")}
_MATH["math.sqrt"] = {f"math_sqrt_{n}": f"{n} -> double" for n in ("double", "int", "uint")}
MATH = functions(_MATH)

URLS = functions(
    {
        "url": {"string_to_url": "string -> URL"},
        "getScheme": {"url_get_scheme": "URL.() -> string"},
        "getHost": {"url_get_host": "URL.() -> string"},
        "getHostname": {"url_get_hostname": "URL.() -> string"},
        "getPort": {"url_get_port": "URL.() -> string"},
        "getEscapedPath": {"url_get_escaped_path": "URL.() -> string"},
        "getQuery": {"url_get_query": "URL.() -> map(string, list(string))"},
        "isURL": {"is_url_string": "string -> bool"},
    }
)

REGEX = functions(
    {
        "find": {"string_find_string": "string.(string) -> string"},
        "findAll": {
            "string_find_all_string": "string.(string) -> list(string)",
            "string_find_all_string_int": "string.(string, int) -> list(string)",
        },
    }
)

_INCLUDES: Library = {"includes": {"list_includes_dyn_dyn": "dyn.(dyn) -> bool"}}
_SHORT = tuple(_ORDERED.values())
_KUBERNETES_LISTS: Library = {
    "isSorted": {f"list_{name}_is_sorted_bool": f"list({name}).() -> bool" for name in _SHORT},
    "sum": {f"list_{name}_sum_{name}": f"list({name}).() -> {name}" for name in ("int", "uint", "double", "duration")},
    "max": {f"list_{name}_max_{name}": f"list({name}).() -> {name}" for name in _SHORT},
    "min": {f"list_{name}_min_{name}": f"list({name}).() -> {name}" for name in _SHORT},
    "indexOf": {"list_a_index_of_int": "list(A).(A) -> int"},
    "lastIndexOf": {"list_a_last_index_of_int": "list(A).(A) -> int"},
}
INCLUDES = functions(_INCLUDES)
KUBERNETES_LISTS = functions(_KUBERNETES_LISTS)
KUBERNETES_LISTS_V1 = functions({**_KUBERNETES_LISTS, **_INCLUDES})

AUTHORIZER = functions(
    {
        "path": {"authorizer_path": "Authorizer.(string) -> PathCheck"},
        "group": {"authorizer_group": "Authorizer.(string) -> GroupCheck"},
        "serviceAccount": {"authorizer_serviceaccount": "Authorizer.(string, string) -> Authorizer"},
        "resource": {"groupcheck_resource": "GroupCheck.(string) -> ResourceCheck"},
        "subresource": {"resourcecheck_subresource": "ResourceCheck.(string) -> ResourceCheck"},
        "namespace": {"resourcecheck_namespace": "ResourceCheck.(string) -> ResourceCheck"},
        "name": {"resourcecheck_name": "ResourceCheck.(string) -> ResourceCheck"},
        "check": {
            "pathcheck_check": "PathCheck.(string) -> Decision",
            "resourcecheck_check": "ResourceCheck.(string) -> Decision",
        },
        "errored": {"decision_errored": "Decision.() -> bool"},
        "error": {"decision_error": "Decision.() -> string"},
        "allowed": {"decision_allowed": "Decision.() -> bool"},
        "reason": {"decision_reason": "Decision.() -> string"},
    }
)
AUTHORIZER_SELECTORS = functions(
    {
        "fieldSelector": {"authorizer_fieldselector": "ResourceCheck.(string) -> ResourceCheck"},
        "labelSelector": {"authorizer_labelselector": "ResourceCheck.(string) -> ResourceCheck"},
    }
)

QUANTITIES = functions(
    {
        "quantity": {"string_to_quantity": "string -> Quantity"},
        "isQuantity": {"is_quantity_string": "string -> bool"},
        # Upstream declares sign as a global function only; q.sign() does not compile.
        "sign": {"quantity_sign": "Quantity -> int"},
        "isGreaterThan": {"quantity_is_greater_than": "Quantity.(Quantity) -> bool"},
        "isLessThan": {"quantity_is_less_than": "Quantity.(Quantity) -> bool"},
        "compareTo": {"quantity_compare_to": "Quantity.(Quantity) -> int"},
        "asApproximateFloat": {"quantity_get_float": "Quantity.() -> double"},
        "asInteger": {"quantity_get_int": "Quantity.() -> int"},
        "isInteger": {"quantity_is_integer": "Quantity.() -> bool"},
        "add": {
            "quantity_add": "Quantity.(Quantity) -> Quantity",
            "quantity_add_int": "Quantity.(int) -> Quantity",
        },
        "sub": {
            "quantity_sub": "Quantity.(Quantity) -> Quantity",
            "quantity_sub_int": "Quantity.(int) -> Quantity",
        },
    }
)

IPS = functions(
    {
        "ip": {"string_to_ip": "string -> IP"},
        "family": {"ip_family": "IP.() -> int"},
        "ip.isCanonical": {"ip_is_canonical": "string -> bool"},
        "isUnspecified": {"ip_is_unspecified": "IP.() -> bool"},
        "isLoopback": {"ip_is_loopback": "IP.() -> bool"},
        "isLinkLocalMulticast": {"ip_is_link_local_multicast": "IP.() -> bool"},
        "isLinkLocalUnicast": {"ip_is_link_local_unicast": "IP.() -> bool"},
        "isGlobalUnicast": {"ip_is_global_unicast": "IP.() -> bool"},
        "isIP": {"is_ip": "string -> bool"},
        "string": {"ip_to_string": "IP -> string"},
    }
)
CIDRS = functions(
    {
        "cidr": {"string_to_cidr": "string -> CIDR"},
        "containsIP": {
            "cidr_contains_ip_string": "CIDR.(string) -> bool",
            "cidr_contains_ip_ip": "CIDR.(IP) -> bool",
        },
        "containsCIDR": {
            "cidr_contains_cidr_string": "CIDR.(string) -> bool",
            "cidr_contains_cidr": "CIDR.(CIDR) -> bool",
        },
        "ip": {"cidr_ip": "CIDR.() -> IP"},
        "prefixLength": {"cidr_prefix_length": "CIDR.() -> int"},
        "masked": {"cidr_masked": "CIDR.() -> CIDR"},
        "isCIDR": {"is_cidr": "string -> bool"},
        "string": {"cidr_to_string": "CIDR -> string"},
    }
)
# In CEL's own network library, not in Kubernetes'.
CIDR_MASK = functions({"isMask": {"cidr_is_mask": "CIDR.() -> bool"}})

# Only in mutations.
JSON_PATCHES = functions({"jsonpatch.escapeKey": {"string_jsonpatch_escapeKey_string": "string -> string"}})

NAMED_FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
)
FORMATS = functions(
    {
        "validate": {"format-validate": "Format.(string) -> optional(list(string))"},
        "format.named": {"format-named": "string -> optional(Format)"},
        **{f"format.{name}": {f"format.{name}": "-> Format"} for name in NAMED_FORMATS},
    }
)

SEMVERS = functions(
    {
        "semver": {
            "string_to_semver": "string -> Semver",
            "string_bool_to_semver": "string, bool -> Semver",
        },
        "isSemver": {
            "is_semver_string": "string -> bool",
            "is_semver_string_bool": "string, bool -> bool",
        },
        "isGreaterThan": {"semver_is_greater_than": "Semver.(Semver) -> bool"},
        "isLessThan": {"semver_is_less_than": "Semver.(Semver) -> bool"},
        "compareTo": {"semver_compare_to": "Semver.(Semver) -> int"},
        "major": {"semver_major": "Semver.() -> int"},
        "minor": {"semver_minor": "Semver.() -> int"},
        "patch": {"semver_patch": "Semver.() -> int"},
    }
)
