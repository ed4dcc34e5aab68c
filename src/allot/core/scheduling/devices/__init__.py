"""Claims and devices as the scheduler decides about them: the plugin DynamicResources."""
