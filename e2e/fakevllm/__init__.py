"""A small deterministic server that speaks vLLM 0.32's wire, for every test that needs an engine and no weights.

It is not a replayer: prompts are tokenized by the same made-up model the real vLLM is tested with, scheduled in
batches over KV blocks on a token clock, and answered by a function of the prompt and the seed. What must hold is
written down in `e2e.conformance`, which runs the same requests against both.
"""
