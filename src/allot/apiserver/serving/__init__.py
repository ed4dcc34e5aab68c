"""HTTP around the handlers: connections, headers, formats."""
