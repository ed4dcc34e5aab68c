"""HorizontalPodAutoscalers: how many replicas metrics ask for, what of it is done now, and what is said about it."""
