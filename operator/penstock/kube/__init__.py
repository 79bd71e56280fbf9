"""The API server: which kinds there are, how to read and write them, and what can go wrong."""
