"""The level-based core: a queue of dirty backends, a cache of what was observed, and the reconciler."""
