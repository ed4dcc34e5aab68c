"""API aggregation: groups and versions that other API servers serve, behind APIServices."""
