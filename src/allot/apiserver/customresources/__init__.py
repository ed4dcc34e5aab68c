"""Custom resources: kinds that clients define, served as soon as their definition is accepted."""
