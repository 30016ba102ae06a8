"""The error of tables that cannot be used."""


class TableError(ValueError):
    """The table cannot be used as it is; the message names the column and the cure."""
