"""The guard: a validating webhook that lets no allocation through of what another claim holds, for any API server."""
