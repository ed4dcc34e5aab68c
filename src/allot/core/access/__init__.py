"""Who may do what, decided without touching the world: RBAC, what nodes may see, who may write a claim's status."""
