"""One module per command; each parses its options, calls the core and hands the answer to `allot.cli.output`."""
