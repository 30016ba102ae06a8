"""Pictures: they are drawn, show what they were given, and leave no global state."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import chi2

from novidgp.plots import (
    Bands,
    Density,
    Map,
    Sureness,
    density_levels,
    density_maps,
    maps,
    posterior_slices,
    predictive_bands,
    save_png,
    surest_first,
    training_curve,
)


def bands(title):
    x = np.linspace(0, 1, 20)
    return Bands(title, x, x, {0.5: (x - 1, x + 1), 0.9: (x - 2, x + 2)})


def test_bands_have_a_panel_each_and_a_shade_per_interval():
    figure = predictive_bands([bands("one"), bands("two")], np.array([0.5]), np.array([0.5]))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["one", "two"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[:2] == ["90% of new points", "50% of new points"]


def test_density_maps_have_one_shade_for_all_panels():
    x, y = np.linspace(0, 1, 5), np.linspace(-1, 1, 7)
    panels = [Density(name, x, y, np.full((7, 5), height)) for name, height in (("flat", 0.5), ("high", 2.0))]
    figure = density_maps(panels, np.array([0.5]), np.array([0.0]))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["flat", "high"]
    assert {ax.collections[0].get_clim() for ax in figure.axes} == {(0.0, 2.0)}


def test_maps_share_the_shades_of_the_first():
    side = np.linspace(0, 1, 5)
    first, other = np.arange(25.0).reshape(5, 5), np.full((5, 5), 100.0)
    figure = maps([Map("truth", side, side, first), Map("guess", side, side, other)])
    limits = {ax.collections[0].get_clim() for ax in figure.axes[:2]}
    assert limits == {tuple(np.quantile(first, [0.005, 0.995]))}


def test_the_surest_come_first_and_the_least_sure_are_shown():
    """Three images: sure and right, sure and wrong, unsure. The curve ends at the mean log loss of all."""
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.45, 0.55]])
    labels, images = np.array([0, 0, 1]), np.zeros((3, 4, 4))
    figure = surest_first([Sureness("ours", probabilities)], labels, images, least=2)
    curve, *shown = figure.axes
    losses = -np.log([0.9, 0.2, 0.55])
    np.testing.assert_allclose(curve.lines[0].get_ydata(), np.cumsum(losses) / [1, 2, 3])
    assert [ax.get_title() for ax in shown] == ["1? 55%; is 1", "1? 80%; is 0"]


def test_density_levels_hold_their_mass():
    """Standard normal in two dimensions: mass m lies where the density exceeds exp(-chi2_2(m) / 2) / 2 pi."""
    grid = np.linspace(-6, 6, 601)
    x, y = np.meshgrid(grid, grid)
    density = np.exp(-0.5 * (x**2 + y**2)) / (2 * np.pi)
    expected = [np.exp(-0.5 * chi2.ppf(mass, 2)) / (2 * np.pi) for mass in (0.9, 0.5)]
    assert density_levels(density, (0.9, 0.5)) == pytest.approx(expected, rel=0.01)  # steps of the grid


def test_posteriors_share_their_axes():
    rng = np.random.default_rng(0)
    draws = {name: rng.standard_normal((200, 3)) for name in ("reference", "other")}
    figure = posterior_slices(draws, 0, 2, ["a", "b"])
    assert [ax.get_xlabel() for ax in figure.axes] == ["a", "b", "a"]
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["reference", "other"]


def test_png_is_written(tmp_path):
    loss = np.concatenate([[1e6, np.nan], np.linspace(2, 1, 50)])
    path = save_png(training_curve({"fit": loss}), tmp_path / "t.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_extreme_losses_do_not_flatten_the_curve():
    loss = np.concatenate([[1e6], np.linspace(2, 1, 400)])
    assert training_curve({"fit": loss}).axes[0].get_ylim()[1] < 10


def test_pyplot_is_not_imported():
    check = "import sys, novidgp.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
