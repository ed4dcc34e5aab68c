"""Generated protobuf code. Created by `proto/generate.py` from the .proto files beside it."""
