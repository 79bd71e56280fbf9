"""Request and response shapes of vLLM's HTTP interfaces."""
