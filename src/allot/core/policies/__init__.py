"""Admission policies: which requests they match, and evaluation of their expressions. Pure."""
