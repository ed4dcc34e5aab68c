"""Usage of objects and its limits: resource quotas and limit ranges, independent of their enforcement."""
