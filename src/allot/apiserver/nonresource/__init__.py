"""Everything the server serves besides objects: discovery, OpenAPI, version, health and metrics."""
