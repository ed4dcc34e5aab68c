"""Node pools for decisions: the node template, its price, and how many more nodes are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from allot.core.autoscaling.templates import Template

# Prices are whole millionths of a currency unit per hour, so that sums of them are exact.
MILLION = 10**6
_DECIMALS = 6
# Node labels that name the pool: of the simulated cloud, GKE, EKS and AKS.
_POOL_LABELS = (
    "autoscaling.allot.dev/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)


def pool_name(labels: Mapping[str, str]) -> str:
    """The pool of a node with these labels; empty if unknown."""
    return next((labels[label] for label in _POOL_LABELS if labels.get(label)), "")


class PriceError(ValueError):
    """Text that is not a price."""


def parse_price(text: str) -> int:
    """Millionths per hour, from a text such as 5.07. PriceError."""
    whole, _, rest = text.strip().partition(".")
    if not (whole or rest) or not (whole + rest).isascii() or not (whole + rest).isdigit() or len(rest) > _DECIMALS:
        raise PriceError(f"price {text!r}: expected an amount per hour with at most {_DECIMALS} decimals such as 5.07")
    return int(whole or "0") * MILLION + int(rest.ljust(_DECIMALS, "0") or "0")


def price_text(price: int | Fraction) -> str:
    """An amount for display: 5.07."""
    whole, millionths = divmod(int(price), MILLION)
    text = f"{whole}.{millionths:06d}".rstrip("0")
    places = len(text) - text.index(".") - 1
    return text + "0" * (2 - places) if places < 2 else text


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's standing in its ComputeClass. rank: 0 for the best priority, the same for equally good ones; index: of the
    priority, None if none matches; text: for display."""

    compute_class: str
    rank: int
    index: int | None
    text: str


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes. size: existing and requested nodes; price: see `MILLION`;
    priority: for the priority expander, highest first; closed: why none are available now, empty if they are; barred: why
    its ComputeClass excludes it."""

    name: str
    template: Template
    size: int = 0
    min_size: int = 0
    max_size: int = 0
    price: int = 0
    priority: int = 0
    closed: str = ""
    barred: str = ""
    standing: Standing | None = None

    @property
    def room(self) -> int:
        """How many more nodes can be requested."""
        return 0 if self.closed or self.barred else max(self.max_size - self.size, 0)

    @property
    def rank(self) -> int:
        """The rank in the pool's class, which counts before the price: lower is better; 0 without a class."""
        return self.standing.rank if self.standing is not None else 0

    def instance_name(self, number: int) -> str:
        """The name of the new node with this number while it is tried."""
        return f"template-{self.name}-{number}"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for all pools together. nodes_total_max: of the whole cluster, 0 for unlimited; per_round_max: new nodes at once."""

    nodes_total_max: int = 0
    per_round_max: int = 1000

    def room(self, nodes: int) -> int:
        """How many nodes may be added to this number."""
        room = self.per_round_max
        return min(room, max(self.nodes_total_max - nodes, 0)) if self.nodes_total_max else room


# The number of nodes, by pool name.
Counts = Mapping[str, int]
