"""Who is tried next, and what those who wait are waiting for."""
