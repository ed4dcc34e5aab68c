"""The autoscaler: watches what waits, asks `core.autoscaling` which nodes to buy and which can go, and tells a provider.

Knows providers behind one port (`provider`), evictions, events and the status that others read. Decides nothing about pods or devices.
"""
