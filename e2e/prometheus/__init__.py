"""A real Prometheus that scrapes replicas as the shipped PodMonitor has them scraped.

`server` runs it; `scrape` says what it reads, translated from the PodMonitor that the operator builds.
"""
