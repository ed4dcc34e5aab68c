"""Custom resources that come with allot: a file for each API group, with its definitions and the rights that go with them."""
