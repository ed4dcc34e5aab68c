"""What objects use and what they may use: resource quotas and limit ranges, without knowing who enforces them."""
