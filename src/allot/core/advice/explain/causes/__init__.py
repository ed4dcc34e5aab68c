"""Causes, by where in a pod's life they are found: before the scheduler looks at it, while it looks for a node, and after."""
