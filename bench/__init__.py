"""Measurements: every target runs with `python -m bench.NAME` and writes `results/bench-NAME.json`."""
