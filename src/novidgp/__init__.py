"""Deep Gaussian processes with the posterior you choose."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from novidgp.estimators import DGPClassifier, DGPRegressor, load_model

    __version__: str

__all__ = ["DGPClassifier", "DGPRegressor", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    """Import on first use: `import novidgp` alone loads neither JAX nor NumPy, so the CLI starts at once."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("novidgp")
        except PackageNotFoundError:
            return "0+unknown"
    if name in __all__:
        from novidgp import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'novidgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
