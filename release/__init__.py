"""What a release is made of: packages, their contents, an image; and whether they work without the repository."""
