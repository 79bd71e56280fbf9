"""The one error of the cluster package: a sentence for the person at the terminal that says what to do."""


class ClusterError(RuntimeError):
    """The cluster cannot be built, started or used here; the message says why and what to do."""
