"""Pure: which pod template a backend runs, and which backends may take a new one now."""
