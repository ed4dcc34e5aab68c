"""What is legal: types, declarations, the checker and Kubernetes' validators."""
