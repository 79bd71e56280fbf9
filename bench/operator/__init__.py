"""The operator measured on a real API server: scale, quiet, repair, writes over a life, and faults."""
