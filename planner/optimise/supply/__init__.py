"""What replicas can stand on and what it costs: offers, contracts, hardware, movement."""
