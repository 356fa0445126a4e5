"""Refitting the roofline's coefficients on measured points."""
