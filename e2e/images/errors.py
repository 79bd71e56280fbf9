"""The one error of the image builds: a sentence for the person at the terminal that says what to do."""


class ImageBuildError(RuntimeError):
    """An image cannot be built here; the message says why and what to do."""
