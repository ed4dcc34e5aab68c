"""`allot validate`: checks whether the API server would accept objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from allot.cli.errors import Unreadable
from allot.cli.gates import parse_gates
from allot.cli.linting.server_answers import ServerAnswers
from allot.cli.output import OutputFormat, output_option, progress, talk, write, write_value
from allot.core.advice.lint.unserved import group_meant
from allot.core.features import FeatureGates
from allot.core.model.codec import DecodeError, decode_object
from allot.core.model.convert import ConversionError
from allot.core.model.kinds import UnknownKind, kind_of
from allot.core.schema import FieldReport, check_fields, prune
from allot.core.validation.defaults import with_defaults
from allot.core.validation.fields import INVALID, NOT_SUPPORTED, FieldError
from allot.core.validation.validate import (
    DEFAULT_NAMESPACE,
    Prepared,
    prepare_create,
    prepare_status_update,
    validate_create,
    validate_status_update,
)
from allot.reading.manifests import Manifest, manifests_in, read_sources

EXIT_REFUSED = 1

# Core kinds of which only the device parts are typed: the server's rules for all built-in kinds cover more.
_UNTYPED = frozenset(("Pod", "Node", "Namespace", "PriorityClass"))


class ValidationResult(msgspec.Struct, frozen=True):
    """The errors and warnings of one object."""

    manifest: Manifest
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    checked: bool = True


class ValidationContext(msgspec.Struct, frozen=True):
    """What the rest of the input says about an object."""

    # The first object of each kind and name that has a spec.
    whole: dict[tuple[str, str], Manifest]
    namespace_labels: dict[str, dict[str, str]]

    @staticmethod
    def of(manifests: Sequence[Manifest]) -> ValidationContext:
        """From everything in the input."""
        whole: dict[tuple[str, str], Manifest] = {}
        namespaces: dict[str, dict[str, str]] = {}
        for manifest in manifests:
            if "spec" in manifest.value:
                whole.setdefault(_key(manifest), manifest)
            if (manifest.api_version, manifest.kind) == ("v1", "Namespace"):
                namespaces[manifest.name] = manifest.labels
        return ValidationContext(whole, namespaces)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--feature-gates",
    "gates",
    metavar="GATES",
    default="all",
    show_default=True,
    callback=parse_gates,
    help="The server's feature gates: 'all', 'default' (a stock 1.37 server drops or refuses the fields of the others), or changes "
    "such as DRAListTypeAttributes=true.",
)
@click.option("--strict", is_flag=True, help="Treat unknown fields as errors, like kubectl's --validate=strict.")
@output_option
def validate(files: tuple[str, ...], gates: FeatureGates, strict: bool, output: OutputFormat) -> int:
    """Check manifests offline as the API server of Kubernetes 1.37 would, and show all errors at once.

    FILE is YAML or JSON, a list as `kubectl get -o yaml` prints it, a directory, or - for stdin. All built-in kinds
    are known; custom resources are not checked, and a note says which. Objects are checked as if they were created now; a status without a spec as
    a change to the object of that name in the input. Admin access is checked for namespaces in the input.
    `allot lint` also finds manifests that the server accepts but that cannot work.

    Exit code: 0 if every object is valid, 1 if one is not, 2 if the input is unreadable.

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
    surroundings = ValidationContext.of(manifests)
    server = ServerAnswers(gates)
    invalid = 0
    custom: dict[str, int] = {}
    with progress("validating", len(manifests), writes=True) as advance:
        for manifest in manifests:
            verdict = _verdict(manifest, surroundings, server, gates, strict)
            invalid += bool(verdict.errors)
            if not verdict.checked and not verdict.warnings:
                kind = f"{manifest.kind} ({manifest.api_version})"
                custom[kind] = custom.get(kind, 0) + 1
            _show(verdict, output)
            advance()
    if custom:
        kinds = ", ".join(f"{number} {kind}" for kind, number in custom.items())
        talk(f"note: custom resources are not checked: {kinds}")
    if output is OutputFormat.TABLE:
        _show_total(len(manifests) - sum(custom.values()), invalid)
    return EXIT_REFUSED if invalid else 0


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest.kind, manifest.qualified_name


def _verdict(
    manifest: Manifest, surroundings: ValidationContext, server: ServerAnswers, gates: FeatureGates, strict: bool
) -> ValidationResult:
    whole = surroundings.whole.get(_key(manifest))
    try:
        status_only = _is_status_only(manifest)
        if manifest.kind in _UNTYPED and not status_only:
            errors, warnings, unknown = _checked_by_server(manifest, server)
        elif not status_only:
            errors, warnings, unknown = _checked_as_new(manifest, surroundings, gates)
        elif whole is not None:
            errors, warnings, unknown = _checked_as_status(manifest, whole, gates)
        else:
            warning = "not checked: a status without a spec needs the object it belongs to in the input"
            return ValidationResult(manifest, warnings=(warning,), checked=False)
    except UnknownKind:
        served = server.kinds()
        if (manifest.group, manifest.version, manifest.kind) not in served:
            if group_meant(manifest.group, served) is None:
                return ValidationResult(manifest, checked=False)
            # The group is Kubernetes' own or similar: a misspelling.
            text = f'no matches for kind "{manifest.kind}" in version "{manifest.api_version}"'
            return ValidationResult(manifest, (FieldError("kind", NOT_SUPPORTED, text),))
        errors, warnings, unknown = _checked_by_server(manifest, server)
    except DecodeError as error:
        return ValidationResult(
            manifest, tuple(FieldError(problem.path, INVALID, problem.message) for problem in error.problems)
        )
    except ConversionError as error:
        return ValidationResult(manifest, (FieldError("", INVALID, str(error)),))
    if whole is not None and whole is not manifest and "spec" in manifest.value and not manifest.name.endswith("*"):
        warnings += (f"the name is in use: the API server would already have {whole.origin}",)
    texts = [(field, f'unknown field "{field}"') for field in unknown]
    if strict:
        errors += tuple(FieldError(field, INVALID, text) for field, text in texts)
        warnings = tuple(warning for warning in warnings if not warning.startswith("unknown field "))
    return ValidationResult(manifest, errors, warnings)


def _is_status_only(manifest: Manifest) -> bool:
    kind = kind_of(manifest.api_version, manifest.kind)
    return kind.has_status and "status" in manifest.value and "spec" not in manifest.value


# Errors, warnings (some about unknown fields) and unknown fields.
_Checked = tuple[tuple[FieldError, ...], tuple[str, ...], tuple[str, ...]]


def _checked_by_server(manifest: Manifest, server: ServerAnswers) -> _Checked:
    """Kinds whose rules apply to JSON values."""
    schema = server.schema(manifest.group, manifest.version, manifest.kind)
    report = check_fields(manifest.value, schema) if schema is not None else FieldReport()
    if report.wrong:
        return tuple(FieldError("", INVALID, text) for text in report.wrong), (), report.unknown
    answer = server.ask(prune(manifest.value, schema) if schema is not None else manifest.value)
    return answer.errors, (*report.strict_errors, *answer.warnings), report.unknown


def _checked_as_new(manifest: Manifest, surroundings: ValidationContext, gates: FeatureGates) -> _Checked:
    prepared = prepare_create(manifest.value, gates=gates, now=None, namespace=DEFAULT_NAMESPACE)
    labels = surroundings.namespace_labels.get(manifest.namespace or DEFAULT_NAMESPACE)
    return _answer(prepared, validate_create(prepared, gates=gates, namespace_labels=labels))


def _checked_as_status(manifest: Manifest, whole: Manifest, gates: FeatureGates) -> _Checked:
    """A merge patch of the status of the object that has the same name."""
    stored = decode_object(with_defaults(whole.value, gates=gates, now=None))
    status, patch = whole.value.get("status"), manifest.value["status"]
    if isinstance(status, dict) and isinstance(patch, dict):
        patch = {**status, **patch}
    metadata = whole.value.get("metadata")
    if isinstance(metadata, dict):
        metadata = {"resourceVersion": "1", **metadata}
    prepared = prepare_status_update(
        {**whole.value, "metadata": metadata, "status": patch}, stored, gates=gates, now=None
    )
    return _answer(prepared, validate_status_update(prepared, stored, gates=gates))


def _answer(prepared: Prepared, errors: tuple[FieldError, ...]) -> _Checked:
    return errors, prepared.warnings, prepared.envelope.unknown_fields


def _show(verdict: ValidationResult, output: OutputFormat) -> None:
    for warning in verdict.warnings:
        talk(f"warning: {verdict.manifest}: {warning} ({verdict.manifest.origin})")
    if output is not OutputFormat.TABLE:
        write_value(_as_data(verdict), output)
        return
    if not verdict.errors:
        return
    write(f"{verdict.manifest} ({verdict.manifest.origin})", "red")
    for error in verdict.errors:
        said = f"{error.field}: {error.message}" if error.field else error.message
        write(f"  {said}".replace("\n", "\n      "))


def _as_data(verdict: ValidationResult) -> dict[str, Any]:
    manifest = verdict.manifest
    return {
        "kind": manifest.kind,
        "namespace": manifest.namespace,
        "name": manifest.name,
        "errors": [{"field": error.field, "type": error.type, "message": error.message} for error in verdict.errors],
        "checked": verdict.checked,
        "origin": str(manifest.origin),
    }


def _show_total(count: int, invalid: int) -> None:
    """count: the objects that were checked."""
    if not count:
        write("no object was checked")
    elif invalid:
        verb = "is" if invalid == 1 else "are"
        write("the object is not valid" if count == 1 else f"{invalid} of {count} objects {verb} not valid")
    else:
        write("1 object is valid" if count == 1 else f"{count} objects are valid", "green")
