"""Bounds and reserved words of CEL source text, as cel-go sets them by default and Kubernetes leaves them."""

from __future__ import annotations

# In code points. Selectors have a tighter bound.
EXPRESSION_SIZE_MAX = 100_000
# Nested expressions in the source; nested operations in the tree as written.
NESTING_MAX = 250
SYNTAX_ERRORS_MAX = 100
RECOVERY_ATTEMPTS_MAX = 30
RECOVERY_LOOKAHEAD_TOKENS_MAX = 256

# Usable as field names, but not as variables or functions.
RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
