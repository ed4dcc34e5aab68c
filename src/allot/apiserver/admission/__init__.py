"""Admission: what may enter the cluster, and what is filled in."""
