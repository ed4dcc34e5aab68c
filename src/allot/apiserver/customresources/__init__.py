"""Custom resources: kinds that clients define, served from the moment on that their definition is accepted."""
