"""A fuzzer for allot's servers: valid requests, mutated, until something breaks. Run it with `make fuzz`."""
