"""Benchmark data sets: loaded by name from the official files, and checked at every load."""

from novidgp.datasets.builtin import curve_without_noise, nonstationary_curve, town_houses, town_prices
from novidgp.datasets.cache import fetch_dataset, import_dataset, is_available
from novidgp.datasets.errors import DatasetError, DatasetNotFoundError, DownloadError, UnknownDatasetError
from novidgp.datasets.info import DatasetInfo, Fingerprint
from novidgp.datasets.loaders import Dataset, load_dataset
from novidgp.datasets.registry import dataset_info, dataset_names

__all__ = [
    "Dataset",
    "DatasetError",
    "DatasetInfo",
    "DatasetNotFoundError",
    "DownloadError",
    "Fingerprint",
    "UnknownDatasetError",
    "curve_without_noise",
    "dataset_info",
    "dataset_names",
    "fetch_dataset",
    "import_dataset",
    "is_available",
    "load_dataset",
    "nonstationary_curve",
    "town_houses",
    "town_prices",
]
