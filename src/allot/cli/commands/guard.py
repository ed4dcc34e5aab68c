"""`allot guard`: prevents double allocation of devices, on any API server and for any scheduler."""

from __future__ import annotations

import sys
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from allot.cli.component import (
    CannotRun,
    Component,
    component_options,
    options_of,
    read_certificates,
    run_component,
)
from allot.cli.durations import duration_option
from allot.cli.output import talk
from allot.guard.configuration import Service, WebhookOptions, webhook_configuration
from allot.guard.guard import Guard, GuardOptions
from allot.guard.serving import PATH
from allot.yaml_values.writer import yaml_text

_LEASE = "allot-guard"
# Kubernetes' bounds of timeoutSeconds.
_TIMEOUT_S_MAX = 30
# API servers need a moment to learn the next certificate.
_VALIDITY_S_MIN = 5.0


@click.command()
@click.option(
    "--print-webhook-configuration",
    "prints",
    is_flag=True,
    help="Print the ValidatingWebhookConfiguration for these options and exit. The leader sets the certificates.",
)
@click.option(
    "--install",
    is_flag=True,
    help="Create the ValidatingWebhookConfiguration and keep it in line with these options. Without this option, the leader only "
    "updates the address and the certificates of an existing one.",
)
@click.option(
    "--webhook-configuration-name",
    "name",
    default="allot-guard",
    show_default=True,
    metavar="NAME",
    help="The name of the ValidatingWebhookConfiguration.",
)
@click.option(
    "--webhook-service",
    "service",
    default="",
    metavar="NAMESPACE/NAME[:PORT]",
    help="The Service through which API servers reach the leader. Its endpoints must be only the ready pods; or none, with "
    "--webhook-endpoint-address.",
)
@click.option(
    "--webhook-endpoint-address",
    "endpoint_address",
    default="",
    metavar="IP",
    help="With --webhook-service: the address of this process. The leader sets it as the only endpoint of the Service, which has no "
    "selector, and the other processes are also ready.",
)
@click.option(
    "--webhook-url",
    "url",
    default="",
    metavar="URL",
    help="Where API servers reach this process, without a Service.  [default: https://BIND-ADDRESS:PORT/validate]",
)
@click.option(
    "--webhook-bind-address",
    default="127.0.0.1",
    show_default=True,
    metavar="IP",
    help="The address to serve API servers on.",
)
@click.option(
    "--webhook-port",
    type=click.IntRange(0, 65535),
    default=9443,
    show_default=True,
    help="The port for API servers (HTTPS); 0 takes a free one.",
)
@click.option(
    "--failure-policy",
    type=click.Choice(("Fail", "Ignore")),
    default="Fail",
    show_default=True,
    help="What happens to allocations while no guard answers: Fail refuses them, Ignore stores them unguarded.",
)
@duration_option(
    "--webhook-timeout",
    default="5s",
    help_="How long API servers wait for an answer (timeoutSeconds, 1s to 30s).",
)
@duration_option(
    "--write-timeout",
    default="30s",
    help_="How long a write may still be stored after it was admitted: the guard holds it for this time, and a new leader waits for it "
    "unless the old one was stopped cleanly. Must be at least the timeoutSeconds of any other validating webhook on claims.",
)
@duration_option(
    "--serving-certificate-validity",
    "validity",
    default="720h",
    help_="The validity of certificates. They are replaced after two thirds of it.",
)
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Answer only clients with a certificate of this authority (PEM): API servers that are configured to present one.",
)
@component_options(lease_name=_LEASE, port=10258)
def guard(prints: bool, validity: float, client_ca_file: Path | None, **arguments: Any) -> None:
    """Run the guard: a validating webhook that refuses allocations of devices that another claim holds.

    Kubernetes stores every allocation that a scheduler writes. Two schedulers on the same devices, such as kube-scheduler and allot's, eventually
    allocate one device to two claims. The API server calls the guard before it stores an allocation, and the guard lets one of two through,
    including shares, capacities and counters of partitions. Allot's own API server does this itself and needs no guard.

    Processes elect a leader, which decides. The others are not ready (/readyz), unless the leader is the Service's only endpoint. The leader creates its own certificate and
    writes it into the ValidatingWebhookConfiguration.

    \b
    Examples:
      allot guard --install --kubeconfig ./kubeconfig
      allot guard --print-webhook-configuration --webhook-service allot/guard | kubectl apply -f -
      allot guard --webhook-service allot/guard --webhook-bind-address 0.0.0.0
    """
    options = options_of(arguments)
    webhook = _webhook(arguments)
    if prints:
        if not webhook.url and webhook.service is None:
            raise click.UsageError("--print-webhook-configuration needs --webhook-service or --webhook-url.")
        sys.stdout.write(yaml_text(webhook_configuration(webhook)))
        return
    guard_options = GuardOptions(
        webhook=webhook,
        installs=arguments["install"],
        bind_address=arguments["webhook_bind_address"],
        port=arguments["webhook_port"],
        write_timeout_s=_write_timeout(arguments["write_timeout"], webhook.timeout_s),
        certificate_validity_s=_validity(validity),
        client_ca=read_certificates(client_ca_file) if client_ca_file is not None else b"",
        endpoint_address=_endpoint_address(arguments["endpoint_address"], webhook),
    )
    made = Guard(guard_options, options.gates)
    run_component("guard", options, partial(_work, made, guard_options), made.readiness)


def _webhook(arguments: dict[str, Any]) -> WebhookOptions:
    service, url = arguments["service"], arguments["url"]
    if service and url:
        raise click.UsageError("--webhook-service and --webhook-url exclude each other.")
    timeout = arguments["webhook_timeout"]
    if timeout != int(timeout) or not 1 <= timeout <= _TIMEOUT_S_MAX:
        raise click.UsageError(
            f"--webhook-timeout: expected whole seconds from 1s to {_TIMEOUT_S_MAX}s, got {timeout:g}s."
        )
    return WebhookOptions(
        name=arguments["name"],
        service=_service(service) if service else None,
        url=_url(url) if url else "",
        fails_closed=arguments["failure_policy"] == "Fail",
        timeout_s=int(timeout),
    )


def _endpoint_address(value: str, webhook: WebhookOptions) -> str:
    if not value:
        return ""
    if webhook.service is None:
        raise click.UsageError("--webhook-endpoint-address needs --webhook-service.")
    try:
        return str(ip_address(value))
    except ValueError:
        raise click.UsageError(f"--webhook-endpoint-address: expected an IP address, got {value!r}.") from None


def _service(value: str) -> Service:
    namespace, slash, rest = value.partition("/")
    name, _, port = rest.partition(":")
    if not (slash and namespace and name) or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise click.UsageError(f"--webhook-service: expected NAMESPACE/NAME or NAMESPACE/NAME:PORT, got {value!r}.")
    return Service(namespace, name, int(port) if port else 443)


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme != "https" or not parts.hostname or parts.path not in ("", "/", PATH):
        raise click.UsageError(f"--webhook-url: expected https://HOST:PORT{PATH}, got {value!r}.")
    return f"https://{parts.netloc}{PATH}"


def _write_timeout(seconds: float, webhook_timeout_s: int) -> float:
    if seconds < webhook_timeout_s:
        raise click.UsageError(
            f"--write-timeout: expected at least the webhook's timeout of {webhook_timeout_s}s, got {seconds:g}s."
        )
    return seconds


def _validity(seconds: float) -> float:
    if seconds < _VALIDITY_S_MIN:
        raise click.UsageError(
            f"--serving-certificate-validity: expected at least {_VALIDITY_S_MIN:g}s, got {seconds:g}s."
        )
    return seconds


async def _work(made: Guard, options: GuardOptions, component: Component) -> None:
    try:
        await made.lead(component.client, component.clock, component.ids, component.registry, component.elector, talk)
    except OSError as error:
        where = f"{options.bind_address}:{options.port}"
        raise CannotRun(
            f"cannot listen on {where}: {(error.strerror or str(error)).lower()}", "choose another --webhook-port"
        ) from None
