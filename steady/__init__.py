"""Whether the tests pass on a busy machine: `make steady`."""
