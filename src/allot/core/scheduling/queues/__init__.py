"""The tree of queues: how teams share a cluster, who is next, and who has to give back. Amounts are exact; nothing here has I/O."""
