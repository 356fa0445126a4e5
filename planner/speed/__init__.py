"""The speed room."""
