"""Pictures of a fitted PV-MinCq: what they show is what was fitted, without a warning, and no text on another."""

import copy
import io
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import MinCqClassifier, PVMinCqClassifier, PVTransportClassifier
from pvmincq_jax.plots import plot_criterion, plot_transfer


@pytest.fixture(scope="module")
def model():
    task = moons_task("40", 1004, per_class=16, test_size=20)
    given = {"radius": [0.3, 0.6, 1.0], "gamma": [2.0, 8.0], "draws": 3}
    return PVMinCqClassifier(**given).fit_domains(task.source, task.source_labels, task.target)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_transfer_draws_every_pair(model):
    ax = plot_transfer(model)
    (arrows,) = (one for one in ax.collections if hasattr(one, "U"))
    assert len(arrows.U) == len(model.pairs_.source)
    ends = np.stack([arrows.X + arrows.U, arrows.Y + arrows.V], axis=1)
    np.testing.assert_allclose(ends, model.target_[model.pairs_.target])
    assert f"PV = {model.pv_:.2f}" in ax.get_title()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[:3] == ["source, class 1", "source, class -1", "target, matched"]
    other = plot_transfer(model, features=(1, 0), ax=plt.figure().add_subplot())
    assert other.get_xlabel() == "feature 1"


def test_names_are_drawn_as_they_are_written(model):
    """A dollar sign begins no formula, one that cannot be read (an error) or one that can (other letters)."""
    named = copy.copy(model)
    named.classes_ = np.array(["$x^$", "$100$"])
    named.feature_names_in_ = np.array(["price in $", r"$\frac$"])
    ax = plot_transfer(named)
    ax.figure.savefig(io.BytesIO())
    texts = [*ax.get_legend().get_texts(), ax.xaxis.label, ax.yaxis.label]
    shown = {text.get_text() for text in texts}
    assert {"source, class $x^$", "source, class $100$", "price in $", r"$\frac$"} <= shown
    # One letter is wider than none: had they been formulas, the dollar signs would not be drawn.
    plain = ax.figure.text(0, 0, "source, class $100$", fontsize=texts[0].get_fontsize(), parse_math=False)
    (drawn,) = (text for text in texts if text.get_text() == plain.get_text())
    assert drawn.get_window_extent().width == pytest.approx(plain.get_window_extent().width)


def test_criterion_frames_the_chosen_point(model):
    ax = plot_criterion(model)
    row, gamma, column = model.choice_.grid_index
    (frame,) = ax.patches
    assert (frame.get_x(), frame.get_y()) == (column - 0.5, row - 0.5)
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(shown, model.criterion_[:, gamma, :])
    assert f"{model.criterion_.min():.3f}" in {text.get_text() for text in ax.texts}


@pytest.fixture(scope="module")
def moved():
    task = moons_task("40", 1004, per_class=16, test_size=20)
    return PVTransportClassifier(gamma=2.0, draws=3, match_moments=True).fit_domains(
        task.source, task.source_labels, task.target
    )


def test_a_committee_is_drawn_by_its_best_member(moved):
    """All votes at the largest radius have a seat, and are of one mind on so small a shift."""

    def at_the_last(sweep):
        return np.where(np.arange(len(sweep.radii)) == len(sweep.radii) - 1, 1.0, 2.0)[:, None, None] + 0 * sweep.status

    given = {"gamma": 2.0, "margin": [0.3, 0.4, 0.5], "draws": 2, "criterion": at_the_last, "top_fraction": 1.0}
    model = PVTransportClassifier(**given).fit_domains(moved.source_, moved.source_labels_, moved.source_ + 0.1)
    assert model.radius_ is None
    assert f"radius {model.choice_.radius:.2f}: PV = {model.pv_:.2f}" in plot_transfer(model).get_title()


@pytest.mark.parametrize(
    ("scaled", "told"), [(False, "the source as it is"), (True, "the source on the target's scale")]
)
def test_nobody_matched_has_no_arrows(moved, scaled, told):
    """Radius 0: the source where it is, or rescaled alone."""

    def only(sweep):
        rows = [float(one.radius) == 0 and bool(one.match_moments) == scaled for one in sweep.transports]
        return np.where(np.array(rows)[:, None, None], 1.0, 2.0) * np.ones(sweep.status.shape)

    model = PVTransportClassifier(gamma=2.0, draws=2, criterion=only, top_fraction=None)
    model.fit_domains(moved.source_, moved.source_labels_, moved.target_)
    assert (model.radius_, model.pv_, model.adapted_) == (0.0, 1.0, scaled)
    ax = plot_transfer(model)
    assert not [one for one in ax.collections if hasattr(one, "U")]
    assert told in ax.get_title()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["source, class 1", "source, class -1", "target, unmatched"]


def test_the_criterion_of_the_transport_form_can_be_read(moved):
    """Radii in order, one run for each scale, and colours that one large score does not wash out."""
    ax = plot_criterion(moved)
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert len(names) == len(moved.sweep_.radii)
    assert names[0] == "none"
    assert [name for name in names if name.endswith("*")] == names[names.index("none*") :]
    for run in (names[1 : names.index("none*")], names[names.index("none*") + 1 :]):
        radii = [float(name.split()[0]) for name in run]
        assert radii == sorted(radii)
    (frame,) = ax.patches
    column, row = int(frame.get_x() + 0.5), int(frame.get_y() + 0.5)
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    assert shown[row, column] == moved.choice_.score == np.nanmin(shown)
    chosen = names[row]
    assert chosen == "none" + "*" * moved.choice_.match_moments or chosen.startswith(f"{moved.choice_.radius:.2f} ")
    large = copy.copy(moved)
    scores = moved.choice_.scores.copy()
    scores[0, 0, 0] = 1e9
    large.choice_ = moved.choice_._replace(scores=scores)
    image = plot_criterion(large).images[0]
    finite = np.ma.compressed(image.get_array())
    assert np.max(finite) == 1e9
    # All others share a fifth of the shades, where they would share none.
    assert np.ptp(image.norm(np.sort(finite)[:-1])) > 0.2
    small = PVTransportClassifier(gamma=2.0, draws=1, keep_sweep=False)
    small.fit_domains(moved.source_, moved.source_labels_, moved.target_)
    with pytest.raises(ValueError, match="keep_sweep=True"):
        plot_criterion(small)


@pytest.mark.parametrize("draw", [plot_transfer, plot_criterion])
@pytest.mark.parametrize("form", ["model", "moved"])
def test_texts_do_not_overlap(form, draw, request):
    ax = draw(request.getfixturevalue(form))
    ax.figure.canvas.draw()
    texts = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    texts += ax.get_legend().get_texts() if ax.get_legend() else []
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_errors_say_what_to_do(model):
    with pytest.raises(ValueError, match=r"this MinCqClassifier has no pairs_. Call fit"):
        plot_transfer(MinCqClassifier())
    with pytest.raises(ValueError, match=r"features must be two columns in \[0, 1\]"):
        plot_transfer(model, features=(0, 2))
    given = PVMinCqClassifier(radius=0.6, margin=0.2, gamma=2.0)
    given.fit_domains(model.source_, model.source_labels_, model.target_)
    with pytest.raises(ValueError, match=r"no criterion to draw.*Leave one of them out"):
        plot_criterion(given)
    code = """
import sys, types
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
from pvmincq_jax.plots import _axis
try:
    _axis(None, (1, 1))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert "pip install -e '.[plots]'" in done.stdout
