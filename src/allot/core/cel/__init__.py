"""CEL, the language of device selectors: from source text to an answer about a device.

Layers, bottom to top: `ast` and `types`; `values`, `text`, `times`; `lexer`, `parser`, `check` with `environment` and
`declarations` (what is legal); `functions*` (what calls do); `plan` (how cel-go would evaluate it); `interpret` (reference
semantics, with costs) and `generate` (the same as Python code); `cost` (worst case beforehand); `projection` (which parts
of a device matter) and `explain` (why not). `selector` is the way in for everybody else.

Pure: no I/O, no clock. Knows nothing of the API types; devices come as `device.DeviceView`.
"""
