"""Plans beside the plan: other futures, drivers at both ends, every fleet in every future, last quarter."""
