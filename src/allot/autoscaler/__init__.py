"""The autoscaler: watches pending pods, lets `core.autoscaling` decide which nodes to add and remove, and calls a provider.

Knows providers behind one port (`provider`), evictions, events and the published status. Decides nothing about pods or devices.
"""
