"""Machines with accelerators of one model, by name: a cloud's, `<model>x<count>` or `<model>`. Shared by the tables of several vendors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from allot.devices.profiles.machines import PLAIN_COUNT_MAX, Bus, lay_out

_PLAIN = re.compile(r"([a-z0-9-]+?)(?:x([0-9]{1,2}))?")


class UnknownCardMachine(LookupError):
    """No machine or model of a vendor has this name."""


class Card(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model: the fields that all vendors share."""

    key: str
    product_name: str
    pci_device_id: str
    memory_mib: int
    power_limit_w: int


Model = TypeVar("Model", bound=Card)


class CardMachine(msgspec.Struct, Generic[Model], frozen=True, kw_only=True):
    """A machine with cards of one model."""

    name: str
    model: Model
    buses: tuple[Bus, ...]
    cloud: str = ""
    cpus: int = 8
    memory_gib: int = 32


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cpus: int
    memory_gib: int
    model: str
    gpus: int
    cloud: str = ""
    numa_nodes: int = 1


class CardTables(msgspec.Struct, Generic[Model], frozen=True, forbid_unknown_fields=True):
    """A vendor's models, and its named machines."""

    models: tuple[Model, ...]
    machines: Mapping[str, _Shape]

    def by_key(self) -> Mapping[str, Model]:
        """All models by key."""
        return {model.key: model for model in self.models}

    def names(self) -> tuple[str, ...]:
        """All named machines, and models, which mean a machine with one card."""
        return (*self.by_key(), *self.machines)

    def find(self, name: str) -> CardMachine[Model]:
        """The machine with this name; UnknownCardMachine lists the known ones."""
        models = self.by_key()
        shape = self.machines.get(name) or self._plain(name)
        if shape is None:
            raise UnknownCardMachine(
                f"machine {name!r}: expected a model and a number from 1 to {PLAIN_COUNT_MAX} such as "
                f"{self.models[0].key}x8, or one of {', '.join(self.names())}"
            )
        buses, _ = lay_out(shape.gpus, 0, shape.numa_nodes)
        return CardMachine(
            name=name,
            model=models[shape.model],
            buses=tuple(buses),
            cloud=shape.cloud,
            cpus=shape.cpus,
            memory_gib=shape.memory_gib,
        )

    def _plain(self, name: str) -> _Shape | None:
        plain = _PLAIN.fullmatch(name)
        if plain is None or plain[1] not in self.by_key() or not 1 <= int(plain[2] or 1) <= PLAIN_COUNT_MAX:
            return None
        count = int(plain[2] or 1)
        return _Shape(16 * count, 128 * count, plain[1], count, numa_nodes=2 if count > 4 else 1)
