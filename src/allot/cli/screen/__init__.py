"""A cluster on the whole terminal: the pages of the dashboard for those who live there. Only ever reads.

`pages` turns rows of the dashboard's model into cells and is pure; `app` draws them and hears keys.
"""
