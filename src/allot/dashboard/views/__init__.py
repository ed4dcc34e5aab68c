"""The contents of pages as plain values: pure functions of a cluster, without clock and I/O."""
