"""The `allot` command: reads manifests, asks the core, prints answers.

This is the composition root, the only package that may import everything below it. What it decides is what to read
and how to show it; every question about devices is answered in `allot.core`.

Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 refused (does not fit, is not valid), 2 usage or input that
cannot be read.
"""
