"""Upstream's parser messages for text that does not parse. Only for messages: the parser in `syntax` decides validity."""
