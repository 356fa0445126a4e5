"""What is done to canonical distributions: `merge`, `scale`, `split`, and `small_cells` merged into neighbours.

`cell` is one cell of a length law in whole numbers, `tail_rows` what the tail table knows of its requests;
`merge_bursts` and `merge_prefix` are the tables that cannot just be added.
"""
