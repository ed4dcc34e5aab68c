"""Builds releases: packages, their contents, an image; and checks that they work without the repository."""
