"""CEL, the language of device selectors: from source text to an answer about a device.

Packages, bottom to top: `syntax` (with `antlr` for upstream's parse error messages); `data`; `checking`; `library`;
`evaluation` (reference semantics, with `costs`) and `codegen` (the same semantics as Python code); `explaining`. `projection` says which parts of
a device an expression reads. `selector` is the entry point for device selectors, `evaluation.program` for everything else.

Pure: no I/O, no clock. Knows nothing of the API types; devices come as `device.DeviceView`.
"""
