"""The scheduler's decisions on claims and devices: the plugin DynamicResources."""
