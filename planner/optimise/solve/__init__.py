"""The program solved: statuses, the ratio, large instances, and the loop that makes needs exact."""
