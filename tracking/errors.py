"""What can be wrong with a store. Apart from the code that talks to it, so that catching an error imports no MLflow."""


class StoreError(Exception):
    """The store cannot be used; the message is one line fit for the command line."""


class RunNotFound(StoreError):
    """No run has this id."""
