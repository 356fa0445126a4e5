"""Traffic of a warehouse or cluster: aggregated where it stands, so that only small tables come back."""
