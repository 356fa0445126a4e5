"""The traffic room."""
