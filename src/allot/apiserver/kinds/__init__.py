"""The built-in kinds: the list (`table`), conversion between versions (`versions`), processing of incoming objects (`strategies`)."""
