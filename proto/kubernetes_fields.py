"""Makes src/allot/wire/kubernetes_fields.json: field numbers of Kubernetes' messages, from a checkout of its sources.

Run by hand when the served version changes:  python proto/kubernetes_fields.py PATH-TO-KUBERNETES

A field is [JSON name, type, flags]. Types are scalars (s text, b bytes, i integer, ? boolean, d double), messages by name, or
`<value type>` of maps with text keys. Flags: r repeated, o omitted when zero (no pointer and omitempty), l inline.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(optional|repeated)\s+([.\w]+)\s+(\w+)\s*=\s*(\d+)", re.MULTILINE)
_MAP = re.compile(r"^\s*map<string,\s*([.\w]+)>\s+(\w+)\s*=\s*(\d+)", re.MULTILINE)
_PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r'^\s*(?:\w+\s+)?([*\[\]\w.]+)\s+`[^`]*json:"([^"]*)"[^`]*protobuf:"\w+,(\d+)', re.MULTILINE)
_SCALARS = {
    "string": "s", "bytes": "b", "bool": "?", "double": "d", "float": "d",
    "int32": "i", "int64": "i", "uint32": "i", "uint64": "i",
}  # fmt: skip


def _go_tags(folder: Path) -> dict[tuple[str, int], tuple[str, str]]:
    """(struct, field number) -> (Go type, JSON tag)."""
    tags = {}
    for source in sorted(folder.glob("*.go")):
        if source.name.startswith("zz_") or source.name.endswith((".pb.go", "_test.go")):
            continue
        for struct, body in _STRUCT.findall(source.read_text()):
            for go_type, tag, number in _TAGGED.findall(body):
                tags[struct, int(number)] = go_type, tag
    return tags


def _messages(proto: Path) -> dict[str, dict[str, list[str]]]:
    text = re.sub(r"//[^\n]*", "", proto.read_text())
    package = _PACKAGE.search(text)
    assert package is not None, proto
    tags = _go_tags(proto.parent)
    found = {}
    for name, body in _MESSAGE.findall(text):
        fields = {}
        entries = [
            (label == "repeated", type_, field, number, False) for label, type_, field, number in _FIELD.findall(body)
        ]
        entries += [(False, type_, field, number, True) for type_, field, number in _MAP.findall(body)]
        for repeated, type_, field, number, is_map in entries:
            go_type, tag = tags.get((name, int(number)), ("", field))
            json_name, _, options = tag.partition(",")
            flags = "r" if repeated else ""
            if go_type and not json_name:
                flags += "l"
            if not go_type.startswith("*") and ("omitempty" in options or "omitzero" in options):
                flags += "o"
            kind = _SCALARS.get(type_) or _qualified(type_, package[1])
            fields[number] = [json_name or field, f"<{kind}>" if is_map else kind, flags]
        found[f"{_short(package[1])}.{name}"] = fields
    return found


def _short(package: str) -> str:
    return package.removeprefix("k8s.io.").removeprefix("api.")


def _qualified(type_: str, package: str) -> str:
    return _short(type_[1:]) if type_.startswith(".") else f"{_short(package)}.{type_}"


def main() -> None:
    """Write the table."""
    root = Path(sys.argv[1]) / "staging/src/k8s.io"
    folders = [
        *root.glob("api/*/*"),
        *root.glob("apimachinery/pkg/**"),
        root / "apiextensions-apiserver/pkg/apis/apiextensions/v1",
        root / "kube-aggregator/pkg/apis/apiregistration/v1",
    ]
    table: dict[str, dict[str, list[str]]] = {}
    for folder in sorted(folders):
        proto = folder / "generated.proto"
        if proto.exists() and "testapigroup" not in str(proto):
            table |= _messages(proto)
    target = Path(__file__).parent.parent / "src/allot/wire/kubernetes_fields.json"
    lines = ",\n".join(f"{json.dumps(name)}:{json.dumps(table[name], separators=(',', ':'))}" for name in sorted(table))
    target.write_text("{\n" + lines + "\n}\n")


main()
