"""All checks, in the order in which they are run. Each module is a group."""

from allot.driver.conformance.checks import (
    bad_claims,
    crashes,
    health,
    life,
    preparing,
    registration,
    slices,
    unpreparing,
)

ALL_CHECKS = (
    *registration.CHECKS.all,
    *slices.CHECKS.all,
    *preparing.CHECKS.all,
    *bad_claims.CHECKS.all,
    *unpreparing.CHECKS.all,
    *crashes.CHECKS.all,
    *health.CHECKS.all,
    *life.CHECKS.all,
)

__all__ = ["ALL_CHECKS"]
