"""Who asks, and whether they may: certificates, tokens, authentication, authorization, reviews, impersonation, audit.

The decisions themselves are in `allot.core.access`; here are the files, keys and clocks around them.
"""
