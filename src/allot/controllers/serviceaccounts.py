"""Three controllers that prepare namespaces: default service accounts, the root CA's certificates, and tokens in Secrets.

The last two need what only some processes have: the certificates, and the key that signs tokens. Otherwise they are idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Runnable, Services
from allot.core.lifecycle import accounts
from allot.core.lifecycle.actions import Action, Answers, LookUp
from allot.core.model.core_v1 import Namespace

# A namespace's objects are deleted before this process may have learned of its deletion.
_LATE_S = 0.5

Object = dict[str, Any]
_SecretKey = tuple[str, str]


class Resting:
    """An idle controller."""

    async def run(self) -> None:
        """Nothing."""


class _Furnishing:
    """Ensures that every namespace has one object of a name."""

    def __init__(
        self,
        services: Services,
        plural: str,
        name: str,
        wanted: Callable[[Namespace | None, Object | None], Sequence[Action]],
        *,
        queue_name: str,
        component: str,
    ) -> None:
        self._name = name
        self._wanted = wanted
        informers = services.informers
        self._namespaces: Informer[Namespace] = informers.typed(Namespace)
        self._objects: Informer[Object] = informers.dynamic(
            "", "v1", plural, namespaced=True, field_selector=f"metadata.name={name}"
        )
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name=queue_name,
            component=component,
            waits_for=(self._namespaces, self._objects),
        )
        self._namespaces.add_handler(self._notice_namespace)
        self._objects.add_handler(self._notice_object)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _notice_namespace(self, change: Change[Namespace]) -> None:
        if change.new is not None:
            self._controller.queue.add(change.key)

    def _notice_object(self, change: Change[Object]) -> None:
        if change.old is not None:
            self._controller.queue.add_after(change.old["metadata"]["namespace"], _LATE_S)

    def _reconcile(self, namespace: str, answers: Answers) -> Sequence[Action]:  # noqa: ARG002 - it asks nothing
        present = self._objects.cache.get(f"{namespace}/{self._name}")
        return self._wanted(self._namespaces.cache.get(namespace), present)


class Tokens:
    """Fills Secrets with tokens, and deletes those of deleted service accounts."""

    def __init__(self, services: Services, sign: Callable[[Object, str], str]) -> None:
        self._sign = sign
        self._root_ca = services.root_ca
        informers = services.informers
        self._accounts: Informer[Object] = informers.dynamic("", "v1", "serviceaccounts", namespaced=True)
        self._secrets: Informer[Object] = informers.dynamic(
            "", "v1", "secrets", namespaced=True, field_selector=f"type={accounts.TOKEN_TYPE}"
        )
        self._secrets.cache.add_index("account", _account_of)
        self._controller: Controller[_SecretKey] = Controller(
            services,
            self._reconcile,
            queue_name="serviceaccount_tokens_secret",
            component="serviceaccount-token-controller",
            waits_for=(self._accounts, self._secrets),
        )
        self._accounts.add_handler(self._notice_account)
        self._secrets.add_handler(self._notice_secret)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _notice_account(self, change: Change[Object]) -> None:
        if change.old is None or change.new is None:
            for secret in self._secrets.cache.by_index("account", change.key):
                metadata = secret["metadata"]
                self._controller.queue.add((f"{metadata['namespace']}/{metadata['name']}", change.key))

    def _notice_secret(self, change: Change[Object]) -> None:
        for account in _account_of(change.object):
            self._controller.queue.add((change.key, account))

    def _reconcile(self, key: _SecretKey, answers: Answers) -> Sequence[Action]:
        name, account_name = key
        secret, cached = self._secrets.cache.get(name), self._accounts.cache.get(account_name)
        if secret is None:
            return accounts.without_reference(cached, name.partition("/")[2])
        if not accounts.is_token_secret(secret):
            return ()
        account = accounts.owner_of(secret, cached, answers)
        if isinstance(account, LookUp):
            return (account,)
        if account is None:
            return accounts.without_account(secret)
        token = self._sign(dict(account), secret["metadata"]["name"]) if accounts.needs_token(secret) else ""
        return accounts.filled(secret, account, self._root_ca, token)


def _account_of(secret: Object) -> tuple[str, ...]:
    return (accounts.account_key(secret),) if accounts.is_token_secret(secret) else ()


def make_accounts(services: Services) -> Runnable:
    """The controller `serviceaccount-controller`."""
    return _Furnishing(
        services,
        "serviceaccounts",
        accounts.DEFAULT_ACCOUNT,
        accounts.default_account,
        queue_name="serviceaccount",
        component="serviceaccount-controller",
    )


def make_root_ca(services: Services) -> Runnable:
    """The controller `root-ca-certificate-publisher-controller`."""
    if not services.root_ca:
        return Resting()
    return _Furnishing(
        services,
        "configmaps",
        accounts.ROOT_CA,
        partial(accounts.root_ca, certificates=services.root_ca),
        queue_name="root_ca_cert_publisher",
        component="root-ca-certificate-publisher-controller",
    )


def make_tokens(services: Services) -> Runnable:
    """The controller `serviceaccount-token-controller`."""
    return Resting() if services.sign_token is None else Tokens(services, services.sign_token)
