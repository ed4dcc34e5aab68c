"""What fields objects have: schemas of built-in kinds and of custom resources as one kind of tree.

`Schemas` is made from the OpenAPI definitions of all built-in kinds (reading them is the caller's business) and gives the
`Schema` of a kind; nodes are built when someone looks at them. A custom resource's structural schema becomes the same
`Schema`. On it stand the checks of strict decoding, pruning and defaulting here, and patching and ownership of fields in
`core.patching`. Whether values make sense is not known here: that is `core.validation`.
"""

from allot.core.schema.defaulting import apply_defaults
from allot.core.schema.fields import FieldReport, check_fields
from allot.core.schema.node import Kind, Schema, Shape
from allot.core.schema.pruning import prune
from allot.core.schema.schemas import Schemas

__all__ = ["FieldReport", "Kind", "Schema", "Schemas", "Shape", "apply_defaults", "check_fields", "prune"]
