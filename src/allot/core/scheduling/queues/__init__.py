"""The tree of queues: how teams share a cluster, which job is next, and which must give back. Amounts are exact; no I/O."""
