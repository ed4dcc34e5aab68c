"""Metrics: their text format, CPU and memory usage as rates, and series by pod and label."""
