"""Results of load tests as measured points: one module per tool, one record, one set of checks, one file.

A tool's module says what is in its file (`types.Run`); `checks` decides whether that is a steady point and at which
concurrency; `identity` adds what no tool records; `points_file` writes and reads the points.
"""
