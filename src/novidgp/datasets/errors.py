"""The errors of loading, importing and fetching data sets."""


class DatasetError(ValueError):
    """A file was found but is not the data set it claims to be."""


class UnknownDatasetError(DatasetError):
    """No data set has this name; the message offers the nearest one."""


class DatasetNotFoundError(FileNotFoundError):
    """The data set is known but none of its files is on this machine; the message says how to get them."""


class DownloadError(DatasetError):
    """The official address did not deliver the file; the message says how to import it by hand."""
