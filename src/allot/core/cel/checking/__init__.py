"""Type checking: types, declarations, the checker and Kubernetes' validators."""
