"""`allot validate`: would the API server take these objects?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from allot.cli.errors import Unreadable
from allot.cli.manifests import Manifest, manifests_in, read_sources
from allot.cli.output import OutputFormat, output_option, progress, talk, write, write_value
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates, UnknownGate
from allot.core.model.codec import DecodeError
from allot.core.model.convert import ConversionError
from allot.core.validation.fields import INVALID, NOT_SUPPORTED, FieldError
from allot.core.validation.validate import DEFAULT_NAMESPACE, UnknownKind, prepare_create, validate_create

EXIT_REFUSED = 1


class Verdict(msgspec.Struct, frozen=True):
    """What is wrong with one object, and what its author should know although it is not wrong."""

    manifest: Manifest
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


def _gates(_context: click.Context, _parameter: click.Parameter, value: str) -> FeatureGates:
    """`all`, `default`, or changes to the default in the form that Kubernetes' components take."""
    gates = DEFAULT_GATES
    enable: list[str] = []
    disable: list[str] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, equals, state = part.partition("=")
        if name in ("all", "default") and not equals:
            gates = ALL_GATES if name == "all" else DEFAULT_GATES
        elif equals and state.lower() in ("true", "false"):
            (enable if state.lower() == "true" else disable).append(name)
        else:
            raise Unreadable(f"feature gate {part!r}: expected NAME=true, NAME=false, all or default")
    try:
        return gates.changed(enable, disable)
    except UnknownGate as error:
        raise Unreadable(str(error)) from None


@click.command(short_help="Would the API server take these objects?")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--feature-gates",
    "gates",
    metavar="GATES",
    default="all",
    show_default=True,
    callback=_gates,
    help="The server's gates: 'all', 'default', or changes such as DRAListTypeAttributes=false.",
)
@click.option("--strict", is_flag=True, help="Unknown fields are errors, as with kubectl's --validate=strict.")
@output_option
def validate(files: tuple[str, ...], gates: FeatureGates, strict: bool, output: OutputFormat) -> int:
    """Check manifests offline as the API server of Kubernetes 1.37 would, all errors at once.

    FILE is YAML or JSON, a list as `kubectl get -o yaml` prints it, a folder, or - for stdin. Checked are the kinds of
    resource.k8s.io in all their versions, the device parts of pods, and the kinds of scheduling.k8s.io. Objects are
    checked as if they were created now; what only a running cluster can know is left out.

    Exit code: 0 when every object is valid, 1 when one is not, 2 when the input cannot be read.

    \b
    Examples:
      allot validate claim.yaml
      allot validate manifests/ --strict
      allot validate slices.yaml --feature-gates default,DRAListTypeAttributes=true
      allot validate claim.yaml -o json
      kubectl get resourceslices -o yaml | allot validate -
    """
    manifests = [manifest for source, data in read_sources(files) for manifest in manifests_in(data, source)]
    if not manifests:
        raise Unreadable(f"{', '.join(files)}: no objects: expected at least one")
    invalid = 0
    with progress("validating", len(manifests)) as advance:
        for manifest in manifests:
            verdict = _verdict(manifest, gates, strict)
            invalid += bool(verdict.errors)
            _show(verdict, output)
            advance()
    if output is OutputFormat.TABLE:
        _show_total(manifests, invalid)
    return EXIT_REFUSED if invalid else 0


def _verdict(manifest: Manifest, gates: FeatureGates, strict: bool) -> Verdict:
    try:
        prepared = prepare_create(manifest.value, gates=gates, now=None, namespace=DEFAULT_NAMESPACE)
    except UnknownKind as error:
        return Verdict(manifest, (FieldError("kind", NOT_SUPPORTED, str(error)),))
    except DecodeError as error:
        return Verdict(
            manifest, tuple(FieldError(problem.path, INVALID, problem.message) for problem in error.problems)
        )
    except ConversionError as error:
        return Verdict(manifest, (FieldError("", INVALID, str(error)),))
    errors = validate_create(prepared, gates=gates)
    warnings = prepared.warnings
    if strict:
        unknown = prepared.envelope.unknown_fields
        errors += tuple(FieldError(field, INVALID, f'unknown field "{field}"') for field in unknown)
        warnings = tuple(warning for warning in warnings if not warning.startswith("unknown field "))
    return Verdict(manifest, errors, warnings)


def _show(verdict: Verdict, output: OutputFormat) -> None:
    for warning in verdict.warnings:
        talk(f"warning: {verdict.manifest}: {warning} ({verdict.manifest.origin})")
    if output is not OutputFormat.TABLE:
        write_value(_as_data(verdict), output)
        return
    if not verdict.errors:
        return
    write(f"{verdict.manifest} ({verdict.manifest.origin})", "red")
    for error in verdict.errors:
        write(f"  {error.field}: {error.message}" if error.field else f"  {error.message}")


def _as_data(verdict: Verdict) -> dict[str, Any]:
    manifest = verdict.manifest
    return {
        "kind": manifest.kind,
        "namespace": manifest.namespace,
        "name": manifest.name,
        "errors": [{"field": error.field, "type": error.type, "message": error.message} for error in verdict.errors],
        "origin": str(manifest.origin),
    }


def _show_total(manifests: Sequence[Manifest], invalid: int) -> None:
    count = len(manifests)
    if invalid:
        write(f"{invalid} of {count} objects {'is' if invalid == 1 else 'are'} not valid")
    else:
        write("1 object is valid" if count == 1 else f"{count} objects are valid", "green")
