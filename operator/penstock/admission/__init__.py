"""Who is admitted, who waits and who is refused: pure decisions, with the clock passed in."""
