"""What every object goes through, whatever its kind: bodies, fields, metadata, owners of fields, selection."""
