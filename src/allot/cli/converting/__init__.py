"""Files and clusters for `allot convert` and `allot apply`: rewrites files with their comments, applies objects in order."""
