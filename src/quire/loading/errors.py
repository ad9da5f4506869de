"""The one error of loading."""


class ModelLoadError(ValueError):
    """A model that cannot be loaded; the message names the file or tensor, what is wrong and how to mend it."""
