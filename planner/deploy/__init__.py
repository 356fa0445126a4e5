"""A plan as a running fleet: commands, Kubernetes manifests and chart values, from `planner deploy`."""
