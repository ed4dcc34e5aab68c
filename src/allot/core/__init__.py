"""The pure core: same input, same output, on every machine.

Nothing in here does I/O, reads a clock, rolls dice or logs; import-linter keeps it so (pyproject.toml). Shells around it
read and write the world.
"""
