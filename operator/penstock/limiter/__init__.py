"""The sidecar in front of one engine: wire, gate, drain, engine poller and admin port."""
