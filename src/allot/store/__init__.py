"""Where objects are kept: one port (`port`), three implementations (`memory`, `sqlite`, `etcd`)."""
