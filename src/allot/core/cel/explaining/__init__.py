"""Why an expression was false or failed."""
