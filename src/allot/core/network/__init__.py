"""What pods see of a network, as decisions: which addresses there are, who is behind a Service, what a name means."""
