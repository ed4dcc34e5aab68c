"""Patches as pure functions: JSON patch, merge patch, strategic merge patch, server-side apply."""
