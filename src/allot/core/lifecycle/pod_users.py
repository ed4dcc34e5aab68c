"""The user and groups of a pod's containers, as far as the pod sets them."""

from __future__ import annotations

from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.pods_v1 import RunnablePod


def run_as_user(pod: RunnablePod, container: RunnableContainer) -> int | None:
    """The user of a container; None if its image decides."""
    own, shared = container.security_context, pod.spec.security_context
    if own is not None and own.run_as_user is not None:
        return own.run_as_user
    return shared.run_as_user if shared is not None else None


def must_not_be_root(pod: RunnablePod, container: RunnableContainer) -> bool:
    """runAsNonRoot of a container, or of its pod."""
    own, shared = container.security_context, pod.spec.security_context
    if own is not None and own.run_as_non_root is not None:
        return own.run_as_non_root
    return bool(shared is not None and shared.run_as_non_root)


def fs_user(pod: RunnablePod) -> int | None:
    """The one user that all containers run as; None if there are several, or one is not set."""
    users = {run_as_user(pod, each) for each in pod.containers()}
    return users.pop() if len(users) == 1 else None
