"""Workloads and what serves them: why one is not as wanted, rolled up from its pods, conditions and events. `answer` is the door."""
