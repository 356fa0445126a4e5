"""Tables of measured or planned points: reading rows, naming what they mean, answering them."""
