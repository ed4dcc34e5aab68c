"""A full-screen terminal view of a cluster with the dashboard's pages. Read-only.

`pages` turns rows of the dashboard's model into cells and is pure; `app` draws them and handles keys.
"""
