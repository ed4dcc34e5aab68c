"""What `allot convert` and `allot apply` do with texts and clusters: rewrite files with their comments, apply objects in order."""
