"""The object store: one port (`port`), three implementations (`memory`, `sqlite`, `etcd`)."""
