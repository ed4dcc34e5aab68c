"""Errors that end an allocation attempt, unlike "does not fit", which is an answer."""

from __future__ import annotations


class AllocationError(Exception):
    """The attempt cannot continue: the claim, a class or a pool is broken. The message is upstream's.

    per_node: only this node is affected, others may still be tried.
    """

    def __init__(self, message: str, *, per_node: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.per_node = per_node
