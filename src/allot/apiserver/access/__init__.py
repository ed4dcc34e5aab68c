"""Access control: certificates, tokens, authentication, authorization, reviews, impersonation, audit.

`allot.core.access` decides; this package has the files, keys and clocks.
"""
