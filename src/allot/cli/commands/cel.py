"""`allot cel`: explains a device selector: its type, its cost, and which devices it selects and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from allot.cli.errors import Refused, Unreadable
from allot.cli.output import TERMINAL, OutputFormat, output_option, progress, talk, write, write_table, write_value
from allot.cli.scenarios import parse_features
from allot.core.allocation import DEFAULT_FEATURES, Features
from allot.core.allocation.devices import view_of
from allot.core.cel.device import DeviceView
from allot.core.cel.selector import (
    CompiledSelector,
    EnvironmentOptions,
    EvaluationError,
    Explanation,
    SelectorCompileError,
    compile_selector,
)
from allot.core.model import resource_v1
from allot.core.model.codec import DecodeError, decode
from allot.reading.cluster import cluster_from
from allot.reading.documents import parse_documents
from allot.reading.manifests import read_file, read_manifests

COST_LIMIT = 1_000_000
EXIT_REFUSED = 1
_COLOURS = {"match": "green", "error": "red"}


class Finding(msgspec.Struct, frozen=True):
    """The result of the expression for one device."""

    driver: str
    pool: str
    device: str
    outcome: str
    why: str = ""
    # The part of the expression that decided.
    decided_by: str = ""


@click.command()
@click.argument("expression", required=False)
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="ResourceSlices to evaluate the expression on; repeatable.",
)
@click.option(
    "--cases",
    "cases_file",
    metavar="FILE",
    help="Evaluate a file of cases instead: {device, cases: [{expression}]}; prints a JSON line per case.",
)
@click.option(
    "--features",
    metavar="NAMES",
    help="ConsumableCapacity and ListTypeAttributes change which expressions are valid; 'default' or 'all'.  [default: default, with "
    "--cases: all]",
)
@output_option
def cel(
    expression: str | None,
    files: tuple[str, ...],
    cases_file: str | None,
    features: str | None,
    output: OutputFormat,
) -> int:
    """Type-check a device selector, print its cost, and evaluate it on devices.

    The expression is compiled as the API server compiles a new one: same types, same messages, same cost estimate, same
    limit of 1,000,000. With -f, it is evaluated on every device of the ResourceSlices in the file, directory or stdin (-).
    The output shows for each device the part of the expression that decided, with its values.

    Exit code: 0 if the expression is valid, 1 if it is not or costs too much, 2 if the input is unreadable.

    \b
    Examples:
      allot cel 'device.driver == "gpu.example.com"'
      allot cel 'device.attributes["gpu.example.com"].model == "X80"' -f slices.yaml
      allot cel 'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("40Gi"))' -f slices.yaml -o json
      kubectl get resourceslices -o yaml | allot cel 'device.driver.startsWith("gpu")' -f -
    """
    if cases_file is not None:
        if expression is not None or files:
            raise click.UsageError("--cases takes neither an expression nor -f: the file contains both")
        return _run_cases(cases_file, _options(parse_features(features or "all")), output)
    if expression is None:
        raise click.UsageError("Missing argument 'EXPRESSION'.")
    options = _options(parse_features(features) if features is not None else DEFAULT_FEATURES)
    return _try_expression(expression, files, options, output)


def _options(features: Features) -> EnvironmentOptions:
    return EnvironmentOptions(
        list_type_attributes=features.list_type_attributes,
        consumable_capacity=features.consumable_capacity,
        stored=False,
    )


# --- one expression ---


def _try_expression(expression: str, files: tuple[str, ...], options: EnvironmentOptions, output: OutputFormat) -> int:
    slices = cluster_from(read_manifests(files), TERMINAL).of(resource_v1.ResourceSlice) if files else []
    if files and not slices:
        raise Unreadable(f"{', '.join(files)}: no ResourceSlice: expected devices to try the expression on")
    try:
        selector = compile_selector(expression, options)
    except SelectorCompileError as error:
        if output is OutputFormat.TABLE:
            raise Refused(f"expression: {error.message}") from None
        write_value({"expression": expression, "error": error.message, "maxCost": error.max_cost}, output)
        return EXIT_REFUSED
    count = sum(len(slice_.spec.devices or ()) for slice_ in slices)
    with progress("evaluating", count) as advance:
        findings = []
        # One answer serves all devices that look the same to the expression.
        known: dict[Hashable, Explanation] = {}
        for slice_ in slices:
            for device in slice_.spec.devices or ():
                findings.append(_finding(selector, slice_.spec, device, known))
                advance()
    if output is OutputFormat.TABLE:
        _show_table(selector, findings)
    else:
        write_value(_as_data(selector, findings), output)
    return 0 if selector.max_cost <= COST_LIMIT else EXIT_REFUSED


def _finding(
    selector: CompiledSelector,
    spec: resource_v1.ResourceSliceSpec,
    device: resource_v1.Device,
    known: dict[Hashable, Explanation],
) -> Finding:
    place = (spec.driver, spec.pool.name, device.name)
    try:
        view = view_of(spec.driver, device)
    except EvaluationError as error:
        return Finding(*place, "error", str(error))
    key = selector.projection.key(view)
    explanation = known.get(key)
    if explanation is None:
        explanation = known[key] = selector.explain(view)
    if explanation.outcome == "match":
        return Finding(*place, "match")
    return Finding(*place, explanation.outcome, explanation.sentence(), explanation.expression)


def _as_data(selector: CompiledSelector, findings: list[Finding]) -> dict[str, Any]:
    return {
        "expression": selector.expression,
        "type": str(selector.output_type),
        "maxCost": selector.max_cost,
        "costLimit": COST_LIMIT,
        "devices": [
            {
                "driver": finding.driver,
                "pool": finding.pool,
                "device": finding.device,
                "outcome": finding.outcome,
                "why": finding.why,
                "decidedBy": finding.decided_by,
            }
            for finding in findings
        ],
    }


def _show_table(selector: CompiledSelector, findings: list[Finding]) -> None:
    write(f"type: {_type_text(selector)}")
    over = selector.max_cost > COST_LIMIT
    limit = f"more than the limit of {COST_LIMIT}: the API server refuses it" if over else f"of {COST_LIMIT} allowed"
    write(f"cost: at most {selector.max_cost}, {limit}", "red" if over else None)
    if not findings:
        return
    write()
    rows = [(f"{found.driver}/{found.pool}/{found.device}", found.outcome, found.why) for found in findings]
    write_table(("DEVICE", "OUTCOME", "WHY"), rows, _COLOURS)
    counts = Counter(finding.outcome for finding in findings)
    talk(f"{counts['match']} of {len(findings)} devices match, {counts['error']} errors")


def _type_text(selector: CompiledSelector) -> str:
    """An attribute has the type that its device gives it, for which CEL uses the name of a protobuf message."""
    text = str(selector.output_type)
    return text if text == "bool" else f"{text}, known only at run time"


# --- files of cases ---


def _run_cases(path: str, options: EnvironmentOptions, output: OutputFormat) -> int:
    line_format = OutputFormat.YAML if output is OutputFormat.YAML else OutputFormat.JSON
    value = _cases_value(path)
    device = _case_device(value.get("device"), f"{path}: device")
    cases = value["cases"]
    with progress("evaluating", len(cases), writes=True) as advance:
        for answer in _case_answers(cases, device, options, path):
            write_value(answer, line_format)
            advance()
    return 0


def _cases_value(path: str) -> dict[str, Any]:
    documents = parse_documents(read_file(Path(path)), path)
    value = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or not isinstance(value.get("cases"), list):
        raise Unreadable(f"{path}: expected one object with a device and a list of cases")
    return value


def _case_answers(
    cases: list[Any], device: DeviceView, options: EnvironmentOptions, path: str
) -> Iterator[dict[str, Any]]:
    for index, case in enumerate(cases):
        place = f"{path}: cases[{index}]"
        if not isinstance(case, dict) or not isinstance(case.get("expression"), str):
            raise Unreadable(f"{place}: expected an object with an expression")
        own = _case_device(case["device"], f"{place}.device") if "device" in case else device
        yield _case_answer(case["expression"], own, options)


def _case_answer(expression: str, device: DeviceView, options: EnvironmentOptions) -> dict[str, Any]:
    try:
        selector = compile_selector(expression, options)
    except SelectorCompileError as error:
        return {"expression": expression, "error": error.message, "maxCost": error.max_cost}
    try:
        return {"expression": expression, "match": selector.matches(device), "maxCost": selector.max_cost}
    except EvaluationError as error:
        return {"expression": expression, "error": str(error), "maxCost": selector.max_cost}


def _case_device(value: Any, place: str) -> DeviceView:
    """A device in the short form of case files, where a capacity is only its amount."""
    if not isinstance(value, dict) or not isinstance(value.get("driver"), str):
        raise Unreadable(f"{place}: expected an object with driver, attributes and capacity")
    capacity = value.get("capacity")
    if isinstance(capacity, Mapping):
        capacity = {name: {"value": amount} for name, amount in capacity.items()}
    members = {
        "attributes": value.get("attributes"),
        "capacity": capacity,
        "allowMultipleAllocations": value.get("allowMultipleAllocations"),
    }
    try:
        return view_of(value["driver"], decode(members, resource_v1.Device).object)
    except (DecodeError, EvaluationError) as error:
        raise Unreadable(f"{place}: {error}") from None
