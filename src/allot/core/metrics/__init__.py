"""What is measured: the text that it is told in, use of processor and memory as rates, and series by pod and label."""
