"""What `allot lint` needs from outside of the core: the server's answers, the drivers' answers, clusters and profiles; and how findings are shown."""
