"""Changes that may help, by what they change. `trial.would_help` tries whether they do."""
