"""What pages show, as plain values: pure functions of a cluster, without clock and without I/O."""
