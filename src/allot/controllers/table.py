"""The controllers by kube-controller-manager's names, and which of them a `--controllers` option selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from allot.controllers import (
    certificates,
    clusterroleaggregation,
    computedomain,
    coscheduling,
    cronjob,
    daemonset,
    deployment,
    devicetainteviction,
    disruption,
    endpoints,
    garbagecollector,
    horizontalpodautoscaler,
    job,
    namespace,
    nodelifecycle,
    podgc,
    podgrouper,
    podgroupprotection,
    policystatus,
    replicaset,
    resourceclaim,
    resourcepoolstatus,
    resourcequota,
    resourceslicecleanup,
    serviceaccounts,
    statefulset,
    storageprotection,
    tainteviction,
    ttlafterfinished,
    volcanojob,
    volumes,
)
from allot.controllers.runner import Runnable, Services
from allot.core.features import FeatureGates
from allot.core.lifecycle.attention import FOLDERS


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One controller."""

    name: str
    # The service account in kube-system that it writes as; empty for kube-controller-manager itself, which the shared
    # informers read as.
    account: str
    make: Callable[[Services], Runnable]
    # Feature gates that must all be enabled, or it has nothing to do.
    gates: tuple[str, ...] = ()
    # Whether kube-controller-manager also has it: then it stays off beside one unless selected by name.
    is_upstream: bool = True


class UnknownController(ValueError):
    """A name that no controller has."""


CONTROLLERS: tuple[Row, ...] = (
    Row(name="resourceclaim-controller", account="resource-claim-controller", make=resourceclaim.make),
    Row(
        name="device-taint-eviction-controller",
        account="device-taint-eviction-controller",
        make=devicetainteviction.make,
        gates=("DRADeviceTaints",),
    ),
    Row(
        name="podgroup-protection-controller",
        account="podgroup-protection-controller",
        make=podgroupprotection.make,
        gates=("GenericWorkload",),
    ),
    Row(
        name="coscheduling-controller",
        account="coscheduling-controller",
        make=coscheduling.make,
        is_upstream=False,
    ),
    Row(
        name="volcano-controller",
        account="volcano-controller",
        make=coscheduling.make_for_volcano,
        is_upstream=False,
    ),
    Row(
        name="volcano-job-controller",
        account="volcano-controller",
        make=volcanojob.make,
        is_upstream=False,
    ),
    Row(
        name="pod-grouper-controller",
        account="pod-grouper-controller",
        make=podgrouper.make,
        is_upstream=False,
    ),
    Row(
        name="compute-domain-controller",
        account="compute-domain-controller",
        make=computedomain.make,
        is_upstream=False,
    ),
    Row(name="persistentvolume-binder-controller", account="persistent-volume-binder", make=volumes.make_binder),
    Row(
        name=FOLDERS,
        account="persistent-volume-binder",
        make=volumes.make_folders,
        is_upstream=False,
    ),
    Row(name="ephemeral-volume-controller", account="ephemeral-volume-controller", make=volumes.make_ephemeral),
    Row(
        name="persistentvolumeclaim-protection-controller",
        account="pvc-protection-controller",
        make=storageprotection.make_for_claims,
    ),
    Row(
        name="persistentvolume-protection-controller",
        account="pv-protection-controller",
        make=storageprotection.make_for_volumes,
    ),
    Row(
        name="volumeattributesclass-protection-controller",
        account="volumeattributesclass-protection-controller",
        make=storageprotection.make_for_attributes_classes,
    ),
    Row(name="endpointslice-controller", account="endpointslice-controller", make=endpoints.make_slices),
    Row(name="endpoints-controller", account="endpoint-controller", make=endpoints.make_endpoints),
    Row(
        name="endpointslice-mirroring-controller",
        account="endpointslicemirroring-controller",
        make=endpoints.make_mirror,
    ),
    Row(
        name="resourcepoolstatusrequest-controller",
        account="resourcepoolstatusrequest-controller",
        make=resourcepoolstatus.make,
        gates=("DRAResourcePoolStatus",),
    ),
    Row(
        name="resourceslice-cleanup-controller",
        account="generic-garbage-collector",
        make=resourceslicecleanup.make,
        is_upstream=False,
    ),
    Row(name="garbage-collector-controller", account="generic-garbage-collector", make=garbagecollector.make),
    Row(name="namespace-controller", account="namespace-controller", make=namespace.make),
    Row(name="pod-garbage-collector-controller", account="pod-garbage-collector", make=podgc.make),
    Row(name="node-lifecycle-controller", account="node-controller", make=nodelifecycle.make),
    Row(name="taint-eviction-controller", account="node-controller", make=tainteviction.make),
    Row(name="serviceaccount-controller", account="service-account-controller", make=serviceaccounts.make_accounts),
    Row(name="serviceaccount-token-controller", account="", make=serviceaccounts.make_tokens),
    Row(
        name="root-ca-certificate-publisher-controller",
        account="root-ca-cert-publisher",
        make=serviceaccounts.make_root_ca,
    ),
    Row(
        name="kube-apiserver-serving-clustertrustbundle-publisher-controller",
        account="kube-apiserver-serving-clustertrustbundle-publisher",
        make=certificates.make_publisher,
    ),
    Row(
        name="certificatesigningrequest-approving-controller",
        account="certificate-controller",
        make=certificates.make_approver,
    ),
    Row(name=certificates.SIGNING, account="certificate-controller", make=certificates.make_signer),
    Row(
        name="certificatesigningrequest-cleaner-controller",
        account="certificate-controller",
        make=certificates.make_cleaner,
    ),
    Row(
        name="podcertificaterequest-cleaner-controller",
        account="podcertificaterequestcleaner",
        make=certificates.make_pod_cleaner,
    ),
    Row(name=policystatus.NAME, account=policystatus.NAME, make=policystatus.make),
    Row(name="resourcequota-controller", account="resourcequota-controller", make=resourcequota.make),
    Row(name="job-controller", account="job-controller", make=job.make),
    Row(name="cronjob-controller", account="cronjob-controller", make=cronjob.make),
    Row(name="ttl-after-finished-controller", account="ttl-after-finished-controller", make=ttlafterfinished.make),
    Row(
        name="clusterrole-aggregation-controller",
        account="clusterrole-aggregation-controller",
        make=clusterroleaggregation.make,
    ),
    Row(name="deployment-controller", account="deployment-controller", make=deployment.make),
    Row(name="replicaset-controller", account="replicaset-controller", make=replicaset.make),
    Row(name="replicationcontroller-controller", account="replication-controller", make=replicaset.make_replication),
    Row(name="statefulset-controller", account="statefulset-controller", make=statefulset.make),
    Row(name="daemonset-controller", account="daemon-set-controller", make=daemonset.make),
    Row(
        name="horizontal-pod-autoscaler-controller",
        account="horizontal-pod-autoscaler",
        make=horizontalpodautoscaler.make,
    ),
    Row(name="disruption-controller", account="disruption-controller", make=disruption.make),
)


def select(
    patterns: Sequence[str], gates: FeatureGates, *, beside_upstream: bool = False, rows: Iterable[Row] = CONTROLLERS
) -> tuple[Row, ...]:
    """The controllers that patterns select: `*` for all, `name` for one, `-name` to exclude one; the name wins over `*`.

    beside_upstream: kube-controller-manager runs in the same cluster, so `*` means only the controllers that it lacks.
    """
    rows = tuple(rows)
    names = {row.name for row in rows}
    for pattern in patterns:
        name = pattern.removeprefix("-")
        if pattern != "*" and name not in names:
            raise UnknownController(f"unknown controller {name!r}: expected * or one of {', '.join(sorted(names))}")

    def is_meant(row: Row) -> bool:
        if f"-{row.name}" in patterns:
            return False
        if row.name in patterns:
            return True
        return "*" in patterns and not (beside_upstream and row.is_upstream)

    return tuple(row for row in rows if is_meant(row) and all(gate in gates for gate in row.gates))


def announced_names(rows: Iterable[Row], volume_folder: Path | None, *, signs: bool) -> tuple[str, ...]:
    """The active controllers: the folder provisioner is idle without a directory, the signer without an authority."""
    idle = (FOLDERS if volume_folder is None else "", "" if signs else certificates.SIGNING)
    return tuple(row.name for row in rows if row.name not in idle)
