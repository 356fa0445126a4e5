"""vLLM's subtraction and pool."""
