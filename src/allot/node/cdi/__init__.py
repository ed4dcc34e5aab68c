"""The Container Device Interface 1.1 from a runtime's view: its files, the device behind a name, and what a container
gets with it.

Knows: files, names, precedence, how edits add up. Does not know claims or drivers, nor how a container is created.
"""
