"""The cost of expressions: estimated statically and counted at run time, as in cel-go."""
