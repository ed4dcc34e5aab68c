"""Generated protobuf code, and nothing else. Made by `proto/generate.py` from the .proto files beside it."""
