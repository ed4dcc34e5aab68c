"""`allot autoscaler`: adds and removes nodes, against any Kubernetes API server and any provider of Cluster Autoscaler's gRPC protocol."""

from __future__ import annotations

import asyncio
import logging
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from allot.autoscaler.external_grpc import CALL_TIMEOUT_S, Credentials, ExternalProvider
from allot.autoscaler.loop import Autoscaler
from allot.autoscaler.options import AutoscalerOptions
from allot.cli.autoscaler_sources import AutoscalerSources
from allot.cli.component import Component, component_options, options_of, run_component
from allot.cli.durations import duration_option
from allot.cli.errors import Unreadable
from allot.cli.expanders import parse_expanders
from allot.cli.output import talk
from allot.client.announcement import Announcement
from allot.client.informers import Informers
from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.evictable import Rules
from allot.core.autoscaling.expanders import EXPANDERS
from allot.core.autoscaling.pools import PriceError, parse_price
from allot.core.autoscaling.templates import Template
from allot.core.features import FeatureGates
from allot.core.lifecycle.attention import AUTOSCALER
from allot.devices.catalogue import UnknownProfile, profile_names
from allot.devices.node_files import hint_for
from allot.devices.pool_files import PoolSpec, seconds_of, template_of
from allot.process.supervise import supervise
from allot.reading.documents import parse_documents

_PROVIDERS = ("externalgrpc",)
# Addresses of providers on the same machine.
_OWN_MACHINE = ("unix:", "127.", "localhost:", "[::1]:")


class CloudConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file of --cloud-config, as Cluster Autoscaler's provider of this name reads it."""

    address: str
    key: str = ""
    cert: str = ""
    cacert: str = ""
    grpc_timeout: str = ""


def _fraction(_context: click.Context, _parameter: click.Parameter, text: str) -> Fraction:
    try:
        found = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        found = Fraction(-1)
    if not 0 <= found <= 1:
        raise click.BadParameter(f"{text!r} is not a fraction from 0 to 1 such as 0.5.")
    return found


def _pairs(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        group, equals, value = text.partition("=")
        if not equals or not group or not value:
            raise click.BadParameter(f"{text!r} is not GROUP=VALUE.")
        found[group] = value
    return found


@click.command()
@click.option(
    "--cloud-provider",
    default=_PROVIDERS[0],
    show_default=True,
    metavar="NAME",
    help="The provider of nodes: externalgrpc.",
)
@click.option(
    "--cloud-config",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="How to reach the provider (YAML): address (host:port or unix:/path), for mTLS cacert, cert and key (PEM files), and "
    "grpc_timeout.",
)
@click.option(
    "--expander",
    default="price",
    show_default=True,
    metavar="NAMES",
    callback=parse_expanders,
    help=f"How to choose among sets of nodes that help: {', '.join(EXPANDERS)}; separate several with commas.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="GROUP=PROFILE",
    callback=_pairs,
    help="The hardware of a group's nodes (h100x8, a2-ultragpu-1g), if neither the provider nor a live node reports their devices.",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="GROUP=PRICE",
    callback=_pairs,
    help="The price of a node of a group per hour, if the provider does not report it.",
)
@duration_option("--scan-interval", default="10s", help_="The maximum time between evaluations of the cluster.")
@click.option("--max-nodes-total", type=click.IntRange(0), default=0, show_default=True, help="The maximum number of nodes in the cluster; 0 means unlimited.")  # fmt: skip
@click.option("--max-nodes-per-scaleup", type=click.IntRange(1), default=1000, show_default=True, help="The maximum number of new nodes at once.")  # fmt: skip
@duration_option(
    "--new-pod-scale-up-delay", default="0s", help_="The minimum age of a pod before nodes are bought for it."
)
@duration_option(
    "--max-node-provision-time", default="15m", help_="The maximum time for a node to become ready, including devices."
)
@duration_option(
    "--initial-node-group-backoff-duration", default="5m", help_="The initial backoff of a group after a failure."
)
@duration_option("--max-node-group-backoff-duration", default="30m", help_="The maximum backoff of a group.")
@duration_option(
    "--node-group-backoff-reset-timeout",
    default="3h",
    help_="The time without a failure after which the backoff is reset.",
)
@click.option(
    "--scale-down-enabled/--no-scale-down-enabled", default=True, show_default=True, help="Remove unneeded nodes."
)
@duration_option(
    "--scale-down-unneeded-time", default="10m", help_="How long a node must be unneeded before it is removed."
)
@duration_option(
    "--scale-down-unready-time", default="20m", help_="How long a node must be not ready before it is removed."
)
@duration_option(
    "--scale-down-delay-after-add", default="10m", help_="How long to wait with removals after a scale-up."
)
@duration_option(
    "--scale-down-delay-after-delete", default="0s", help_="How long to wait with removals after a removal."
)
@duration_option(
    "--scale-down-delay-after-failure", default="3m", help_="How long to wait with removals after a failed removal."
)
@click.option(
    "--scale-down-utilization-threshold",
    default="0.5",
    show_default=True,
    metavar="PART",
    callback=_fraction,
    help="Remove nodes whose utilization of processors and memory is below this fraction.",
)
@click.option(
    "--scale-down-gpu-utilization-threshold",
    default="0.5",
    show_default=True,
    metavar="PART",
    callback=_fraction,
    help="The same for nodes with devices: the utilization of the devices.",
)
@click.option("--max-bulk-soft-taint-count", type=click.IntRange(0), default=10, show_default=True,
              help="The maximum number of nodes to mark as unneeded, or unmark, at once; 0 disables marking.")  # fmt: skip
@click.option("--max-scale-down-parallelism", type=click.IntRange(1), default=10, show_default=True, help="The maximum number of nodes to remove at once.")  # fmt: skip
@click.option("--max-drain-parallelism", type=click.IntRange(1), default=1, show_default=True, help="The maximum number of nodes with pods to remove at once.")  # fmt: skip
@duration_option("--max-graceful-termination-sec", default="600s", help_="The maximum time for pods to terminate.")
@duration_option("--max-pod-eviction-time", default="2m", help_="How long to retry an eviction that a budget refuses.")
@click.option("--skip-nodes-with-system-pods/--no-skip-nodes-with-system-pods", default=True, show_default=True,
              help="Keep nodes with pods in kube-system that have no budget.")  # fmt: skip
@click.option("--skip-nodes-with-local-storage/--no-skip-nodes-with-local-storage", default=True, show_default=True,
              help="Keep nodes with pods that have emptyDir or hostPath volumes.")  # fmt: skip
@click.option("--skip-nodes-with-custom-controller-pods/--no-skip-nodes-with-custom-controller-pods", default=True,
              show_default=True, help="Keep nodes with pods that no controller would recreate.")  # fmt: skip
@click.option(
    "--namespace",
    "status_namespace",
    default="kube-system",
    show_default=True,
    help="The namespace of the status ConfigMap.",
)
@click.option("--status-config-map-name", default="cluster-autoscaler-status", show_default=True, metavar="NAME",
              help="The name of the status ConfigMap.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the expander random.")
@click.option(
    "--time-factor",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="The speed of the provider's clock: consolidationDelayMinutes of ComputeClasses are divided by it.",
)
@click.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning")),
    default="info",
    show_default=True,
    help="The minimum level of log messages.",
)
@component_options("cluster-autoscaler", 8085)
def autoscaler(
    cloud_provider: str,
    cloud_config: Path,
    profiles: dict[str, str],
    prices: dict[str, str],
    log_level: str,
    **given: Any,
) -> None:
    """Run the autoscaler: buy the cheapest nodes that let the most important pods run, and remove unneeded nodes.

    It asks the scheduler itself whether a pod fits, on the cluster plus nodes of each group with their devices. Scaling from zero is
    therefore exact: partitions, capacity, constraints, prioritized lists, and whole gangs. It removes a node only if every pod on it fits
    elsewhere with its claims. Annotations, events, metrics, the status ConfigMap and most options are those of Cluster Autoscaler.

    The devices of a group's nodes come from the provider, from a profile (--profile), or from a live node; without any of these, none are
    assumed, and the events of pods say so.

    \b
    Examples:
      allot autoscaler --kubeconfig ./kubeconfig --cloud-config cloud.yaml
      allot autoscaler --cloud-config cloud.yaml --expander priority,price --profile a100=a2-ultragpu-1g --price a100=5.07
      allot autoscaler --cloud-config cloud.yaml --scale-down-unneeded-time 2m --max-nodes-total 50

    \b
    cloud.yaml:
      address: provider.kube-system:8086
      cacert: /etc/ca.crt
      cert: /etc/client.crt
      key: /etc/client.key
    """
    if cloud_provider not in _PROVIDERS:
        raise click.UsageError(
            f"--cloud-provider {cloud_provider!r} is not a provider: {did_you_mean(cloud_provider, _PROVIDERS)}"
        )
    component = options_of(given)
    options = _options(given, profiles, prices)
    config = _read_config(cloud_config)
    logging.getLogger("allot.autoscaler").setLevel(log_level.upper())
    run_component("autoscaler", component, partial(_work, options, config, component.gates))


def _options(given: dict[str, Any], profiles: dict[str, str], prices: dict[str, str]) -> AutoscalerOptions:
    for group, profile in profiles.items():
        try:
            PoolSpec(name=group, machine=profile).nodes(group).resolved()
        except UnknownProfile as error:
            raise Unreadable(f"--profile {group}={profile}: {error}", hint_for(error)) from None
    try:
        millionths = {group: parse_price(text) for group, text in prices.items()}
    except PriceError as error:
        raise Unreadable(f"--price: {error}") from None
    rules = Rules(
        skips_system_pods=given.pop("skip_nodes_with_system_pods"),
        skips_local_storage=given.pop("skip_nodes_with_local_storage"),
        skips_uncontrolled_pods=given.pop("skip_nodes_with_custom_controller_pods"),
    )
    return AutoscalerOptions(
        scan_interval_s=given["scan_interval"],
        expander=given["expander"],
        max_nodes_total=given["max_nodes_total"],
        max_nodes_per_scaleup=given["max_nodes_per_scaleup"],
        new_pod_scale_up_delay_s=given["new_pod_scale_up_delay"],
        max_node_provision_time_s=given["max_node_provision_time"],
        backoff_initial_s=given["initial_node_group_backoff_duration"],
        backoff_max_s=given["max_node_group_backoff_duration"],
        backoff_reset_s=given["node_group_backoff_reset_timeout"],
        scale_down_enabled=given["scale_down_enabled"],
        scale_down_unneeded_time_s=given["scale_down_unneeded_time"],
        scale_down_delay_after_add_s=given["scale_down_delay_after_add"],
        scale_down_delay_after_delete_s=given["scale_down_delay_after_delete"],
        scale_down_delay_after_failure_s=given["scale_down_delay_after_failure"],
        scale_down_unready_time_s=given["scale_down_unready_time"],
        scale_down_utilization_threshold=given["scale_down_utilization_threshold"],
        scale_down_gpu_utilization_threshold=given["scale_down_gpu_utilization_threshold"],
        max_bulk_soft_taint_count=given["max_bulk_soft_taint_count"],
        max_scale_down_parallelism=given["max_scale_down_parallelism"],
        max_drain_parallelism=given["max_drain_parallelism"],
        max_graceful_termination_s=given["max_graceful_termination_sec"],
        max_pod_eviction_time_s=given["max_pod_eviction_time"],
        rules=rules,
        status_namespace=given["status_namespace"],
        status_name=given["status_config_map_name"],
        profiles=profiles,
        prices=millionths,
        seed=given["seed"],
        time_factor=given["time_factor"],
    )


def _read_config(path: Path) -> tuple[CloudConfig, Credentials | None, float]:
    """What is in the file, the certificates that it names, and the deadline of calls."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    documents = parse_documents(data, str(path))
    try:
        config = msgspec.convert(documents[0].value if documents else {}, CloudConfig)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{path}: {error}", "expected address, and for mTLS cacert, cert and key") from None
    given = [name for name in ("cacert", "cert", "key") if getattr(config, name)]
    if given and len(given) < 3:
        raise Unreadable(f"{path}: contains only {' and '.join(given)}: mTLS needs cacert, cert and key")
    try:
        timeout = seconds_of(config.grpc_timeout) if config.grpc_timeout else CALL_TIMEOUT_S
    except ValueError as error:
        raise Unreadable(f"{path}: grpc_timeout: {error}") from None
    if not given:
        return config, None, timeout
    try:
        return config, Credentials.read(Path(config.cacert), Path(config.cert), Path(config.key)), timeout
    except OSError as error:
        raise Unreadable(f"{path}: {error.filename}: {(error.strerror or str(error)).lower()}") from None


def profile_template(profile: str) -> Template | None:
    """The definition of a profile's node; None if the profile does not exist."""
    pool = PoolSpec(name="profile", machine=profile)
    try:
        return template_of(pool)[0]
    except UnknownProfile:
        return None


async def _work(
    options: AutoscalerOptions,
    found: tuple[CloudConfig, Credentials | None, float],
    gates: FeatureGates,
    component: Component,
) -> None:
    config, credentials, timeout = found
    provider = ExternalProvider(config.address, credentials, timeout_s=timeout)
    informers = Informers(component.client, component.clock, component.ids)
    made = Autoscaler(
        component.client,
        component.clock,
        component.ids,
        provider,
        options,
        profile_template,
        component.registry,
        gates,
        instance=component.identity.partition("_")[0],
        machines=profile_names(),
    )
    sources = AutoscalerSources(component.client, informers, component.clock, made)
    await sources.connect()
    if credentials is None and not config.address.startswith(_OWN_MACHINE):
        talk(f"note: the connection to {config.address} is not protected: set cacert, cert and key in --cloud-config")
    talk(f"provider: {config.address}, expander {','.join(options.expander)}")
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informers.run())
            tasks.create_task(made.run(sources.wait_synced))
            await sources.wait_synced()
            talk("ready")
            announcement = Announcement(
                component.client, component.clock, "autoscaler", (AUTOSCALER,), component.identity
            )
            tasks.create_task(supervise("the announcement", announcement.run, component.clock))
            tasks.create_task(supervise("kinds that come later", sources.run, component.clock))
    finally:
        await provider.close()
