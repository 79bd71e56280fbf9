"""Pure assessment: from observed objects to the conditions and counts in an LLMBackend's status."""
