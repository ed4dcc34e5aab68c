"""The verbs: what a create, update, patch, apply, delete, list or watch does, and the subresources."""
