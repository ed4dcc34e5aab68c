"""OpenAPI schemas of kinds as values: what field validation, patches, apply and explain need to know."""
