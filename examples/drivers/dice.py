"""A driver for dice: four per node, each with a number of sides. A pod that claims one finds it in $DICE_0 and so on."""

from __future__ import annotations

import msgspec

from allot.driver import Claim, ConfigKind, Device, DeviceHealth, Driver, Edits, Prepared, PreparedClaim, device, run


class DiceConfig(msgspec.Struct):
    """Parameters of a claim."""

    colour: str = "white"


class Dice(Driver):
    name = "dice.example.com"
    configs = (ConfigKind("dice.example.com/v1", "DiceConfig", DiceConfig),)
    has_device_metadata = True

    def devices(self) -> list[Device]:
        return [
            device(f"dice-{number}", attributes={"sides": sides, "fair": True}, capacity={"rolls": 100})
            for number, sides in enumerate((6, 6, 12, 20))
        ]

    def prepare(self, claim: Claim) -> list[Prepared]:
        prepared = []
        for number, dice in enumerate(claim.devices):
            config = dice.config(DiceConfig, DiceConfig())
            edits = Edits(env={f"DICE_{number}": dice.name, f"DICE_{number}_COLOUR": config.colour})
            prepared.append(Prepared(dice, edits))
        return prepared

    def unprepare(self, claim: PreparedClaim) -> None:
        pass

    def health(self) -> list[DeviceHealth]:
        return [DeviceHealth(name=f"dice-{number}") for number in range(4)]


if __name__ == "__main__":
    run(Dice())
