"""Explain: why a pod, claim or gang waits, or why it was placed where it is, and the smallest change that would help.

Start with `answer.explain` (a snapshot and a question in, a `report.Explanation` out). `what_if.WhatIfCluster` holds the snapshot in the
scheduler's own form, so every statement comes from a real decision and every suggested change has been tried:
applied, decided and reverted. This package writes the sentences; it does not print them.
"""
