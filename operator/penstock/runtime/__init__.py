"""Process wiring of the operator: settings, event source, metrics, health and the order of start and stop."""
