"""The error of this package."""


class TableError(ValueError):
    """The table cannot be used as it is; the message names the column and the cure."""
