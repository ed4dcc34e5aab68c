"""The protocols of the agent's HTTPS endpoint: requests, WebSockets, SPDY, and who may ask.

Knows bytes and frames. Does not know pods; `allot.node.server` connects the two.
"""
