"""The least fleet for a plain table of throughputs."""
