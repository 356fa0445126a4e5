"""Hugging Face configs read into model shapes."""
