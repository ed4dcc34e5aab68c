"""Implementations of functions, by library."""
