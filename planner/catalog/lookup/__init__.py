"""Models, GPUs and versions as logs and tables name them."""
