"""The API server: a Kubernetes REST API over a store. Handlers are plain functions of values; HTTP is an adapter."""
