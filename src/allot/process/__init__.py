"""What every process is made of: clock, ids, configuration, metrics, supervision."""
