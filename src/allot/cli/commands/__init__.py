"""One module per command; each parses its options, calls the core and passes the answer to `allot.cli.output`."""
