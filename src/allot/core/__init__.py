"""The pure core: same input, same output, on every machine.

Nothing in here does I/O, reads a clock, uses randomness or logs; import-linter enforces this (pyproject.toml). Shells around it
read and write the world.
"""
