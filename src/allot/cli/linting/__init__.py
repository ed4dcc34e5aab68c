"""What `allot lint` needs besides the core: answers of the server and of drivers, clusters, profiles, and output formats."""
