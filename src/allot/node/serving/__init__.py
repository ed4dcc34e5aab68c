"""The protocols of the agent's HTTPS endpoint: requests, WebSockets, SPDY, and authorization.

Knows bytes and frames. Does not know pods; `allot.node.server` connects the two.
"""
