"""A cluster in a browser: every device by topology, why pods wait, who holds what. Read-only.

`server` answers browsers, `following` keeps `model` up to date from a cluster or a dump, `views` turn objects into rows and are pure,
`analyst` is a separate process for slow questions.
"""
