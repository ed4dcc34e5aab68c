"""The dashboard's analyst with machines that could be added: the drivers' profiles, which the dashboard itself does not know."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.planning.changes import ChangeError
from allot.core.model.meta import APIStruct
from allot.dashboard import analyst

# Imported late: drivers take longer to import than most questions take.


class Catalogue:
    """The profiles that `allot up` simulates."""

    def offered(self) -> Sequence[tuple[str, str]]:
        """Their names, and what they have."""
        from allot.devices.catalogue import find_profile, profile_names
        from allot.devices.profiles.gpus import gpu_models

        # The most common sizes; any other number of GPUs also has a name.
        names = (*(f"{model}x8" for model in gpu_models()), *profile_names())
        return [(name, find_profile(name).devices or "no devices") for name in names]

    def objects(self, name: str, count: int) -> Sequence[APIStruct]:
        """So many nodes of one, with slices and classes. ChangeError if there is none of that name."""
        from allot.devices.catalogue import UnknownProfile
        from allot.devices.node_files import NodeSet, default_name
        from allot.devices.node_templates import objects_of

        try:
            return tuple(objects_of(NodeSet(profile=name, name=f"{default_name(name)}-new", count=count)))
        except UnknownProfile as error:
            raise ChangeError(f"machine {name}: {error}") from None


if __name__ == "__main__":
    analyst.main(Catalogue())
