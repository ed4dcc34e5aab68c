"""The API users of control plane components, to which the default roles are bound."""

from __future__ import annotations

from allot.core.access.attributes import AUTHENTICATED_GROUP, User
from allot.core.access.service_accounts import service_account_user

ADMINISTRATOR = User("kubernetes-admin", groups=("system:masters", AUTHENTICATED_GROUP))
SCHEDULER = User("system:kube-scheduler", groups=(AUTHENTICATED_GROUP,))
# Reads everything; each controller writes as itself.
CONTROLLERS = User("system:kube-controller-manager", groups=(AUTHENTICATED_GROUP,))
# With the permissions that come with the definition of ComputeClasses.
AUTOSCALER = User("allot:cluster-autoscaler", groups=(AUTHENTICATED_GROUP,))

_NAMESPACE = "kube-system"


def controller_user(account: str) -> User:
    """The service account of a controller. It need not exist: only its name matters, as with certificates."""
    return service_account_user(_NAMESPACE, account, "", {})


def node_user(name: str) -> User:
    """The agent of a node."""
    return User(f"system:node:{name}", groups=("system:nodes", AUTHENTICATED_GROUP))
