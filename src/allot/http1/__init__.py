"""HTTP/1.1 and WebSockets for all servers: API server, node agent, drivers and components.

`heads` knows the grammar, `connections` and `listener` move bytes and limit what clients can cost. The API server's handler works on
connections; the others answer request values (`requests`).
"""
