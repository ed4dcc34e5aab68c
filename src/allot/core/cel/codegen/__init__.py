"""The same plan as Python code, for speed."""
