"""HorizontalPodAutoscalers: how many replicas metrics require, what is applied now, and the status."""
