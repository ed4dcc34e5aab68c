"""The guard: a validating webhook that refuses allocations of devices that another claim holds, for any API server."""
