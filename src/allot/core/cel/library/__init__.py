"""What functions do, library by library."""
