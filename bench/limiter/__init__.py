"""What the limiter promises, as programs: the same bytes, bounded memory, cheap refusals, exact books.

`python -m bench.limiter` measures a limiter process with a core to itself (`bed`, `replica`); `engine` and `client` are
the two sides of the load. `differential` and `fuzz` look at bytes and run the limiter in their own process.
"""
