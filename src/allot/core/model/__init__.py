"""The API as values: types of every kind, and conversion from and to JSON.

`meta`, `core_v1`, `resource_v1` and `scheduling_v1` are the types; `kinds` is the table of kinds; `schema`, `decoding`,
`encoding` and `codec` read and write them; `convert` knows the older versions. Nothing here defaults or validates.
"""
