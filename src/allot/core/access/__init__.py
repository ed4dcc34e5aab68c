"""Access decisions without I/O: RBAC, the node authorizer, writes of claim status."""
