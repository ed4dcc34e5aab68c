"""Causes, by the stage of a pod's life: before scheduling, while the scheduler looks for a node, and after binding."""
