"""Generated protobuf code, and nothing else."""
