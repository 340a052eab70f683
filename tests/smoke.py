"""A few minutes' worth of the library in seconds, on whatever is installed: ``python tests/smoke.py``.

Prints the versions that it ran on. Needs the extras ``[sklearn,plots]`` and nothing of the checkout.
"""

import importlib.metadata

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import pvmincq_jax as pvm
from pvmincq_jax.baselines import svm, tsvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.estimators import PVMinCqClassifier
from pvmincq_jax.plots import plot_transfer

PACKAGES = ("jax", "jaxlib", "jaxopt", "optax", "chex", "numpy", "scipy", "threadpoolctl", "scikit-learn", "matplotlib")
NAMES = ("pvmincq-jax", *PACKAGES)


def main() -> None:
    """MinCq and its derivative, a grid over a mesh and not, validated fits, an estimator, baselines and a picture."""
    task = moons_task("20", seed=0, per_class=20)
    source, labels, target = task.source, task.source_labels, task.target
    grid = {"radii": [0.4, 0.6], "margins": [0.1, 0.3], "gammas": [2.0]}

    with jax.enable_x64(True):
        votes = pvm.rbf_votes(source, source, 2.0)
        largest = pvm.max_margin(votes, labels)
        fractions = jnp.array([0.1, 0.4])
        found = jax.vmap(lambda fraction: pvm.mincq(votes, labels, fraction * largest))(fractions)
        assert np.all(found.status == pvm.Status.SOLVED), found.status
        np.testing.assert_allclose(labels @ votes @ found.weights.T / 40, fractions * largest, rtol=1e-9)
        slope = jax.grad(lambda fraction: pvm.mincq(votes, labels, fraction * largest).c_bound)(0.4)
        assert np.isfinite(slope)

    alone = pvm.sweep(source, labels, target, folds=2, draws=2, **grid)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("lanes",))
    split = pvm.sweep(source, labels, target, folds=2, draws=2, mesh=mesh, **grid)
    assert np.all(alone.status == pvm.Status.SOLVED), alone.status
    np.testing.assert_allclose(alone.c_bound, split.c_bound, rtol=1e-6)
    for fit in (pvm.fit_validated, pvm.fit_transport_validated):
        model = fit(source, labels, target, draws=4, **grid).model
        assert np.mean(pvm.predict(model, task.test) == task.test_labels) > 0.9, fit

    classifier = PVMinCqClassifier(radius=0.5, margin=0.2, gamma=2.0).fit_domains(source, labels, target)
    assert classifier.score(task.test, task.test_labels) > 0.9
    for method in (svm, tsvm):
        machine = method.fit(source, labels, target, {"gamma": 2.0, "cost": 10.0})
        assert np.mean(method.decision(machine, task.test) * task.test_labels > 0) > 0.9, method
    matplotlib.use("Agg")
    plot_transfer(classifier).figure.canvas.draw()

    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in NAMES))


if __name__ == "__main__":
    main()
