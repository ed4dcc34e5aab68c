"""Sockets have short paths."""

from short_paths import tmp_path

__all__ = ["tmp_path"]
