"""Changes that may help, by what they change. None of them is known to help until it has been tried (`trial.would_help`)."""
