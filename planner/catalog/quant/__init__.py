"""How checkpoints store quantised matrices."""
