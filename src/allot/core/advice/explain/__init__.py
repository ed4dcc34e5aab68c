"""Explain: why a pod, claim or gang waits, or why it was placed where it is, and the smallest change that would help.

Start with `answer.explain` (a snapshot and a question in, a `report.Explanation` out). `what_if.WhatIfCluster` holds the snapshot in the
scheduler's own form, so that every statement is a finding of the real decision and every change that is suggested has been tried
out: put into force, decided, and taken back. What is said in words is made here; how it is printed is not known.
"""
