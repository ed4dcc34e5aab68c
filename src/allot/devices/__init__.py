"""The drivers that come with allot, each written with `allot.driver` as an outside author would."""
