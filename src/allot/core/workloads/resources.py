"""The kinds of workloads as API resources."""

from __future__ import annotations

from allot.core.lifecycle.actions import Resource


def _resource(group: str, plural: str, kind: str) -> Resource:
    return Resource(group=group, version="v1", plural=plural, kind=kind, namespaced=True)


DEPLOYMENTS = _resource("apps", "deployments", "Deployment")
REPLICA_SETS = _resource("apps", "replicasets", "ReplicaSet")
REPLICATION_CONTROLLERS = _resource("", "replicationcontrollers", "ReplicationController")
STATEFUL_SETS = _resource("apps", "statefulsets", "StatefulSet")
DAEMON_SETS = _resource("apps", "daemonsets", "DaemonSet")
CONTROLLER_REVISIONS = _resource("apps", "controllerrevisions", "ControllerRevision")
JOBS = _resource("batch", "jobs", "Job")
CRON_JOBS = _resource("batch", "cronjobs", "CronJob")
POD_DISRUPTION_BUDGETS = _resource("policy", "poddisruptionbudgets", "PodDisruptionBudget")
PERSISTENT_VOLUME_CLAIMS = _resource("", "persistentvolumeclaims", "PersistentVolumeClaim")
