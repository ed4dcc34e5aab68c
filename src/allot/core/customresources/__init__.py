"""Custom resources: what makes a definition good, and what makes an object fit its schema and rules. Pure."""
