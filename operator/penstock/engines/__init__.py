"""What differs between engines: command line, environment, metric names, paths, health and shutdown, as data."""
