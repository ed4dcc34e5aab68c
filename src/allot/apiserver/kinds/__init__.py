"""The built-in kinds: which there are (`table`), how their versions relate (`versions`), how objects come in (`strategies`)."""
