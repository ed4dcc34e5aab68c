"""allot's own drivers, each written with the public SDK `allot.driver`."""
