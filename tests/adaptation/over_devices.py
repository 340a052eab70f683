"""Run by `test_devices` in a process of its own: the same grids on one device and over a mesh of two."""

import json
import sys

import jax
import numpy as np

import pvmincq_jax as pvm
from pvmincq_jax.datasets import moons_task
from pvmincq_jax.voting import batch


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
    batch._OPTIONS = {}  # They would go before XLA_FLAGS.
    task = moons_task("40", 3, per_class=12, test_size=10)
    mesh, alone = (jax.sharding.Mesh(np.array(some), ("problems",)) for some in (jax.devices(), jax.devices()[:1]))
    arguments = task.source, task.source_labels, task.target
    given = {"radii": [0.4, 0.6, 0.8], "margins": [0.1, 0.4], "gammas": [6.0], "seed": 1}
    found = {
        "label": apart(*(pvm.sweep(*arguments, **given, folds=2, mesh=one) for one in (alone, mesh))),
        "transport": apart(*(pvm.transport_sweep(*arguments, **given, draws=4, mesh=one) for one in (alone, mesh))),
        "fit": apart(*(pvm.fit_validated(*arguments, **given, draws=2, folds=2, mesh=one) for one in (mesh, None))),
    }
    json.dump({"devices": jax.device_count(), **found}, sys.stdout)


if __name__ == "__main__":
    main()
