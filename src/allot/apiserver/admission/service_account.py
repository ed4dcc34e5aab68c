"""ServiceAccount: pods run as a service account that exists, and find its token in a volume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Object, Operation
from allot.apiserver.admission.objects import annotations_of, containers, metadata, sequence, text
from allot.apiserver.resources import Resource
from allot.core.json_objects import mapping
from allot.process.clock import Clock

MIRROR_POD = "kubernetes.io/config.mirror"
_DEFAULT = "default"
_ENFORCE = "kubernetes.io/enforce-mountable-secrets"
_VOLUME_PREFIX = "kube-api-access-"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
# A controller creates the default account of a new namespace, which may take a moment.
_DEFAULT_ATTEMPTS = 10
_DEFAULT_WAIT_S = 0.1

_TOKEN_SOURCES: list[Object] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
    {
        "downwardAPI": {
            "items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]
        }
    },
]


class ServiceAccount:
    """The plugin. suffix: returns the end of a generated name."""

    def __init__(self, lookup: Lookup, clock: Clock, suffix: Callable[[], str]) -> None:
        self._lookup = lookup
        self._clock = clock
        self._suffix = suffix

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Creates of pods; updates that add ephemeral containers."""
        if (resource.group, resource.plural) != ("", "pods"):
            return False
        if operation is Operation.CREATE:
            return not subresource
        return operation is Operation.UPDATE and subresource == "ephemeralcontainers"

    async def mutate(self, admission: Admission) -> None:
        """Set the account, mount its token, copy its pull secrets."""
        pod = admission.object
        if pod is None or admission.operation is not Operation.CREATE:
            return
        if MIRROR_POD in annotations_of(pod):
            _check_mirror_pod(admission, pod)
            return
        spec = dict(mapping(pod.get("spec")))
        if not text(spec.get("serviceAccountName")):
            spec["serviceAccountName"] = spec["serviceAccount"] = _DEFAULT
        account = await self._account(admission, text(spec["serviceAccountName"]))
        if _wants_token(account, spec):
            self._mount_token(spec)
        pull_secrets = sequence(account.get("imagePullSecrets"))
        if not spec.get("imagePullSecrets") and pull_secrets:
            spec["imagePullSecrets"] = [{"name": mapping(one).get("name", "")} for one in pull_secrets]
        admission.object = {**pod, "spec": spec}

    async def validate(self, admission: Admission) -> None:
        """The account must exist and, if it enforces this, list the secrets that the pod uses."""
        pod = admission.object
        if pod is None:
            return
        created = admission.operation is Operation.CREATE
        if created and MIRROR_POD in annotations_of(pod):
            _check_mirror_pod(admission, pod)
            return
        name = text(mapping(pod.get("spec")).get("serviceAccountName"))
        if not name:
            shown = f"{admission.namespace}/{text(metadata(pod).get('name'))}"
            raise admission.forbidden(f"no service account specified for pod {shown}")
        account = await self._account(admission, name)
        if str(annotations_of(account).get(_ENFORCE)) in ("1", "t", "T", "true", "TRUE", "True"):
            refusal = _secret_refusal(account, pod, created)
            if refusal:
                raise admission.forbidden(refusal)

    async def _account(self, admission: Admission, name: str) -> Object:
        attempts = _DEFAULT_ATTEMPTS if name == _DEFAULT else 1
        for attempt in range(attempts):
            if attempt:
                await self._clock.sleep(_DEFAULT_WAIT_S)
            account = await self._lookup.get("serviceaccounts", "", admission.namespace, name)
            if account is not None:
                return account
        raise admission.forbidden(
            f'error looking up service account {admission.namespace}/{name}: serviceaccount "{name}" not found'
        )

    def _mount_token(self, spec: dict[str, Any]) -> None:
        existing = [
            text(one.get("name"))
            for one in sequence(spec.get("volumes"))
            if isinstance(one, dict) and text(one.get("name")).startswith(_VOLUME_PREFIX)
        ]
        name = existing[0] if existing else _VOLUME_PREFIX + self._suffix()
        mount = {"mountPath": _MOUNT_PATH, "name": name, "readOnly": True}
        needed = False
        for kind in ("initContainers", "containers"):
            items = spec.get(kind)
            if not isinstance(items, list):
                continue
            mounted = [_mounted(item, mount) for item in items]
            needed = needed or any(one is not item for one, item in zip(mounted, items, strict=True))
            spec[kind] = mounted
        if needed and not existing:
            volume = {"name": name, "projected": {"defaultMode": 420, "sources": _TOKEN_SOURCES}}
            spec["volumes"] = [*sequence(spec.get("volumes")), volume]


def _mounted(container: Any, mount: Object) -> Any:
    """The container with the mount; unchanged if something is already mounted there."""
    if not isinstance(container, dict):
        return container
    mounts = container.get("volumeMounts")
    if not mounts or not isinstance(mounts, list):
        return {**container, "volumeMounts": [mount]}
    if any(mapping(one).get("mountPath") == _MOUNT_PATH for one in mounts):
        return container
    return {**container, "volumeMounts": [*mounts, mount]}


def _wants_token(account: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    for preference in (spec.get("automountServiceAccountToken"), account.get("automountServiceAccountToken")):
        if preference is not None:
            return preference is True
    return True


def _check_mirror_pod(admission: Admission, pod: Object) -> None:
    spec = mapping(pod.get("spec"))
    if spec.get("serviceAccountName"):
        raise admission.forbidden("a mirror pod may not reference service accounts")
    if any(True for _ in secret_names(pod)):
        raise admission.forbidden("a mirror pod may not reference secrets")
    for volume in sequence(spec.get("volumes")):
        sources = sequence(mapping(mapping(volume).get("projected")).get("sources"))
        if any("serviceAccountToken" in mapping(source) for source in sources):
            raise admission.forbidden("a mirror pod may not use ServiceAccountToken volume projections")


# --- secrets that a pod uses ---


def _environment(container: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    """(what refers to it, name) of the secrets or config maps that a container's environment uses."""
    key, ref = ("secretKeyRef", "secretRef") if kind == "secret" else ("configMapKeyRef", "configMapRef")
    for one in sequence(container.get("env")):
        source = mapping(mapping(mapping(one).get("valueFrom")).get(key))
        if source:
            yield f"envVar {mapping(one).get('name', '')}", text(source.get("name"))
    for one in sequence(container.get("envFrom")):
        source = mapping(mapping(one).get(ref))
        if source:
            yield "envFrom", text(source.get("name"))


def environment_names(pod: Mapping[str, Any], kind: str) -> Iterator[str]:
    """Names of the secrets or config maps in the environment of any container."""
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for container in containers(pod, group):
            for _, name in _environment(container, kind):
                yield name


_SECRET_VOLUMES = ("azureFile", "cephfs", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos", "csi")


def secret_names(pod: Mapping[str, Any]) -> Iterator[str]:
    """Names of all secrets that a pod refers to."""
    spec = mapping(pod.get("spec"))
    for one in sequence(spec.get("imagePullSecrets")):
        yield text(mapping(one).get("name"))
    yield from environment_names(pod, "secret")
    for raw in sequence(spec.get("volumes")):
        volume = mapping(raw)
        if "secret" in volume:
            yield text(mapping(volume["secret"]).get("secretName"))
        for source in sequence(mapping(volume.get("projected")).get("sources")):
            if "secret" in mapping(source):
                yield text(mapping(mapping(source)["secret"]).get("name"))
        for kind in _SECRET_VOLUMES:
            source = mapping(volume.get(kind))
            reference = source.get("secretName") or mapping(source.get("secretRef")).get("name")
            reference = reference or mapping(source.get("nodePublishSecretRef")).get("name")
            if reference:
                yield text(reference)


def _secret_refusal(account: Mapping[str, Any], pod: Mapping[str, Any], created: bool) -> str:
    """The first secret that an account does not list, as a message."""
    name = text(metadata(account).get("name"))
    allowed = {mapping(one).get("name") for one in sequence(account.get("secrets"))}
    suffix = f"is not allowed because service account {name} does not reference that secret"
    groups = (("initContainers", "init container"), ("containers", "container"))
    if created:
        for raw in sequence(mapping(pod.get("spec")).get("volumes")):
            secret = mapping(raw).get("secret")
            if isinstance(secret, dict) and secret.get("secretName") not in allowed:
                return f'volume with secret.secretName="{secret.get("secretName", "")}" {suffix}'
    else:
        groups = (("ephemeralContainers", "ephemeral container"),) * 2
    for group, label in groups:
        for container in containers(pod, group):
            for what, secret_name in _environment(container, "secret"):
                if secret_name not in allowed:
                    shown = (
                        f'{label} {container.get("name", "")} with {what} referencing secret.secretName="{secret_name}"'
                    )
                    return f"{shown} {suffix}"
    return _pull_secret_refusal(account, pod, name) if created else ""


def _pull_secret_refusal(account: Mapping[str, Any], pod: Mapping[str, Any], account_name: str) -> str:
    allowed = {mapping(one).get("name") for one in sequence(account.get("imagePullSecrets"))}
    for index, one in enumerate(sequence(mapping(pod.get("spec")).get("imagePullSecrets"))):
        name = mapping(one).get("name", "")
        if name not in allowed:
            return (
                f'imagePullSecrets[{index}].name="{name}" is not allowed because service account {account_name} '
                "does not reference that imagePullSecret"
            )
    return ""
