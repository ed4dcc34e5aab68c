"""The Container Device Interface 1.1 as a runtime reads it: which files there are, which device a name means, and what a container
gets with it.

Knows: files, names, precedence, how edits add up. Does not know claims or drivers, nor how a container is made.
"""
