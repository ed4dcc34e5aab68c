"""What messages of programs, nodes and drivers mean, and what helps. The tables are data; `table.py` reads them."""
