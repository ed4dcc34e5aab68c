"""Values at run time: their classes, equality and order, texts, times, regular expressions."""
