"""Standard objects of namespaces: the default service account, the root CA's certificate, and tokens in Secrets.

Accounts, config maps and Secrets are JSON values: they are written back whole.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from allot.core.lifecycle.actions import Action, Answers, Create, Delete, LookUp, Resource, Update
from allot.core.model.core_v1 import Namespace

ACCOUNTS = Resource(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", namespaced=True)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True)
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret", namespaced=True)
DEFAULT_ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"
TOKEN_TYPE = "kubernetes.io/service-account-token"
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"
_DESCRIPTION = "kubernetes.io/description"
_DESCRIBED = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)

JSON = Mapping[str, Any]


def _is_active(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is None


def account_object(namespace: str) -> dict[str, Any]:
    """The service account of pods that name none."""
    return _object(ACCOUNTS, DEFAULT_ACCOUNT, namespace)


def root_ca_object(namespace: str, certificates: str) -> dict[str, Any]:
    """The certificates with which pods verify the API server."""
    made = _object(CONFIG_MAPS, ROOT_CA, namespace)
    made["metadata"]["annotations"] = {_DESCRIPTION: _DESCRIBED}
    return {**made, "data": {"ca.crt": certificates}}


def default_account(namespace: Namespace | None, account: JSON | None) -> tuple[Action, ...]:
    """Every namespace has a default service account; a deleted one is recreated."""
    if namespace is None or not _is_active(namespace) or account is not None:
        return ()
    name = namespace.metadata.name
    return (Create(resource=ACCOUNTS, object=account_object(name), namespace=name, may_exist=True),)


def root_ca(namespace: Namespace | None, present: JSON | None, certificates: str) -> tuple[Action, ...]:
    """Every namespace has the certificates of the API server, and nothing else in that ConfigMap."""
    if namespace is None or not _is_active(namespace):
        return ()
    name, data = namespace.metadata.name, {"ca.crt": certificates}
    if present is None:
        made = root_ca_object(name, certificates)
        return (Create(resource=CONFIG_MAPS, object=made, namespace=name, may_exist=True),)
    metadata = present["metadata"]
    annotations = metadata.get("annotations") or {}
    if present.get("data") == data and annotations.get(_DESCRIPTION):
        return ()
    annotations = {_DESCRIPTION: _DESCRIBED, **annotations}
    changed = {**present, "metadata": {**metadata, "annotations": annotations}, "data": data}
    return (Update(resource=CONFIG_MAPS, object=changed),)


def _object(kind: Resource, name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name, "namespace": namespace}}


# --- tokens ---


def is_token_secret(secret: JSON) -> bool:
    """Whether a Secret is for the token of an account."""
    return secret.get("type") == TOKEN_TYPE and bool(_annotations(secret).get(ACCOUNT_NAME))


def account_key(secret: JSON) -> str:
    """namespace/name of the account that a Secret's token is for."""
    return f"{secret['metadata']['namespace']}/{_annotations(secret).get(ACCOUNT_NAME, '')}"


def _annotations(object_: JSON) -> JSON:
    return object_["metadata"].get("annotations") or {}


def _is_account_of(secret: JSON, account: JSON | None) -> bool:
    uid = _annotations(secret).get(ACCOUNT_UID)
    return account is not None and (not uid or uid == account["metadata"].get("uid"))


def owner_of(secret: JSON, cached: JSON | None, answers: Answers) -> JSON | LookUp | None:
    """The account of a Secret; a lookup if the cache has none; None if it does not exist."""
    if _is_account_of(secret, cached):
        return cached
    question = LookUp(
        resource=ACCOUNTS, name=_annotations(secret)[ACCOUNT_NAME], namespace=secret["metadata"]["namespace"]
    )
    if question not in answers:
        return question
    found: JSON | None = answers[question]
    return found if _is_account_of(secret, found) else None


def needs_token(secret: JSON) -> bool:
    """Whether a Secret has no token yet."""
    return not (secret.get("data") or {}).get("token")


def filled(secret: JSON, account: JSON, certificates: str, token: str) -> tuple[Action, ...]:
    """A Secret with everything that a pod needs. token: a new one, if it needs one."""
    data = dict(secret.get("data") or {})
    metadata = secret["metadata"]
    if certificates and data.get("ca.crt") != _encoded(certificates):
        data["ca.crt"] = _encoded(certificates)
    if not data.get("namespace"):
        data["namespace"] = _encoded(metadata["namespace"])
    if not data.get("token") and token:
        data["token"] = _encoded(token)
    if data == (secret.get("data") or {}):
        return ()
    owner = account["metadata"]
    annotations = {**_annotations(secret), ACCOUNT_NAME: owner["name"], ACCOUNT_UID: owner.get("uid", "")}
    changed = {**secret, "metadata": {**metadata, "annotations": annotations}, "data": data}
    return (Update(resource=SECRETS, object=changed),)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def without_account(secret: JSON) -> tuple[Action, ...]:
    """Delete the token of a deleted account."""
    metadata = secret["metadata"]
    delete = Delete(
        resource=SECRETS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata.get("uid", "")
    )
    return (delete,)


def without_reference(account: JSON | None, secret_name: str) -> tuple[Action, ...]:
    """Remove a deleted Secret from an account's references."""
    named = account.get("secrets") if account is not None else None
    if account is None or not named or all(one.get("name") != secret_name for one in named):
        return ()
    kept = [one for one in named if one.get("name") != secret_name]
    changed = {name: value for name, value in account.items() if name != "secrets"}
    return (Update(resource=ACCOUNTS, object={**changed, "secrets": kept} if kept else changed),)
