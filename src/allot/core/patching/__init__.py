"""Changes to objects: JSON patch, merge patch, strategic merge patch, server-side apply, and who owns which field after them.

Everything takes JSON values and gives new ones; nothing is changed in place, and results share parts with their input. Schemas
(`core.schema`) say how lists merge. Defaults, admission and validation come after a patch and are not known here.
"""

from allot.core.patching.applying import Applied, ApplyConflict, Conflict, apply
from allot.core.patching.errors import PatchError
from allot.core.patching.fieldset import LEAF, Tree, fields
from allot.core.patching.json_patch import json_patch, operation_errors
from allot.core.patching.managed import Convert, without_new_times
from allot.core.patching.merge_patch import merge_diff, merge_patch
from allot.core.patching.resets import reset_fields
from allot.core.patching.scale import resource_managed_fields, scale_managed_fields
from allot.core.patching.strategic import strategic_merge_patch
from allot.core.patching.tracking import track_update

__all__ = [
    "LEAF",
    "Applied",
    "ApplyConflict",
    "Conflict",
    "Convert",
    "PatchError",
    "Tree",
    "apply",
    "fields",
    "json_patch",
    "merge_diff",
    "merge_patch",
    "operation_errors",
    "reset_fields",
    "resource_managed_fields",
    "scale_managed_fields",
    "strategic_merge_patch",
    "track_update",
    "without_new_times",
]
