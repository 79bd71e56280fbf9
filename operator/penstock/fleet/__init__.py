"""What the operator does with all replicas of a backend together: it measures them, and pushes limits to them."""
