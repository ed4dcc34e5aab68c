"""What others answer: the agents of nodes, pods and services."""
