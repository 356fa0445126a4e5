"""What a release of an engine does that changes the pool, typed: a field for each fact of the catalogue."""
