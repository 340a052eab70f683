"""Run by `test_devices` in a process of its own: the same grids on one device and over a mesh of two."""

import json
import sys

import jax
import numpy as np

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.voting import programs


def apart(one, other):
    """The largest difference of any figure of two results."""
    gaps = []
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if not isinstance(a, str):
            a, b = np.asarray(a, float), np.asarray(b, float)
            gaps.append(float(np.max(np.abs(np.where(np.isnan(a) & np.isnan(b), 0.0, a - b)), initial=0.0)))
    return max(gaps)


def main():
    """Prints how far the results are apart, as JSON."""
    jax.config.update("jax_num_cpu_devices", 2)
    programs._OPTIONS = {}  # They would go before XLA_FLAGS.
    task = moons_task("40", 3, per_class=12, test_size=10)
    mesh, alone = (jax.sharding.Mesh(np.array(some), ("problems",)) for some in (jax.devices(), jax.devices()[:1]))
    arguments = task.source, task.source_labels, task.target
    given = {"radii": [0.4, 0.6, 0.8], "margins": [0.1, 0.4], "gammas": [6.0], "seed": 1}
    found = {
        "label": apart(*(pvm.sweep(*arguments, **given, folds=2, mesh=one) for one in (alone, mesh))),
        "transport": apart(*(pvm.transport_sweep(*arguments, **given, draws=4, mesh=one) for one in (alone, mesh))),
        "fit": apart(*(pvm.fit_validated(*arguments, **given, draws=2, folds=2, mesh=one) for one in (mesh, None))),
    }
    # Axes are Explicit by default here, and once the mesh is set for whatever follows.
    explicit = jax.make_mesh((2,), ("problems",))
    one = pvm.sweep(*arguments, **given, folds=2)
    found["explicit axes"] = apart(one, pvm.sweep(*arguments, **given, folds=2, mesh=explicit))

    def bound(gamma):
        votes = pvm.rbf_votes(task.source, task.source, gamma)
        return pvm.mincq(votes, task.source_labels, 0.2 * pvm.max_margin(votes, task.source_labels)).c_bound

    with jax.enable_x64(True):
        gammas = np.array([2.0, 6.0])
        before = jax.jit(jax.vmap(jax.value_and_grad(bound)))(gammas)
        with jax.set_mesh(explicit):
            found["a mesh that is set"] = apart(one, pvm.sweep(*arguments, **given, folds=2))
            found["a user's jit"] = apart(before, jax.jit(jax.vmap(jax.value_and_grad(bound)))(gammas))
    json.dump({"devices": jax.device_count(), **found}, sys.stdout)


if __name__ == "__main__":
    main()
