"""Device plugins on this node: the kubelet's older way to offer devices, as counted extended resources.

`device_plugins` is the entry point. Rules are in `core.lifecycle.plugin_devices`.
"""
