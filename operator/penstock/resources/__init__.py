"""Pure builders: one module per kind of child, from an LLMBackend to the object as Penstock applies it."""
