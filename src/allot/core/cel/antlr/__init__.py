"""What upstream's generated parser says about text that does not parse. Only for messages: the parser in `syntax` decides."""
