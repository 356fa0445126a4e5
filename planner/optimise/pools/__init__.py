"""Which requests a pool may serve, and the routing table."""
