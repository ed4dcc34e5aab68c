"""From source text to a tree: tokens, parser, macros, and a tree's text."""
