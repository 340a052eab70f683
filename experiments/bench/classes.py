"""What more classes cost: fits of the transport form by default, on as many points of two classes and of several."""

import argparse
import time

import numpy as np

from experiments.bench.common import emit, versions
from pvmincq_jax.datasets import DomainTask
from pvmincq_jax.estimators import PVTransportClassifier

__all__ = ["add_arguments", "circle_task", "run"]

_FEATURES = 4
_APART = 4.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``benchmark classes``."""
    parser.add_argument("--quick", action="store_true", help="45 points a domain in place of 300, once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3, help="fits of which the fastest counts (default: 3)")


def circle_task(classes: int, points: int, seed: int) -> DomainTask:
    """Gaussian classes on a circle of a plane in four dimensions; the target is moved, and scaled by a tenth.

    Args:
      classes: how many, equally frequent, numbered from 0.
      points: of each domain, and of the test sample.
      seed: of the draw.

    Returns:
      A `DomainTask`.
    """
    rng = np.random.default_rng(seed)
    samples = []
    for moved in (False, True, True):
        labels = rng.permutation(np.arange(points) % classes)
        angles = 2 * np.pi * labels / classes
        x = rng.normal(size=(points, _FEATURES))
        x[:, :2] += _APART * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        samples.append((1.1 * x + 2 if moved else x, labels))
    (source, source_labels), (target, _), (test, test_labels) = samples
    return DomainTask(source, source_labels, target, test, test_labels)


def run(arguments: argparse.Namespace) -> None:
    """Prints seconds and accuracy of each number of classes, and how many times longer than two they take."""
    emit({"benchmark": "classes", "seed": arguments.seed, **versions("jax", "jaxlib", "scipy")}, arguments.json)
    points, repeats = (45, 1) if arguments.quick else (300, arguments.repeats)
    of_two = 0.0
    for classes in (2, 3, 5):
        task, seconds = circle_task(classes, points, arguments.seed), np.inf
        for _ in range(repeats):
            start = time.perf_counter()
            model = PVTransportClassifier(random_state=0).fit_domains(task.source, task.source_labels, task.target)
            seconds = min(seconds, time.perf_counter() - start)
        of_two = of_two or seconds
        right = 100 * float(np.mean(model.predict(task.test) == task.test_labels))
        row = {"benchmark": "classes", "points": points, "classes": classes, "seconds": seconds}
        emit(row | {"times_two_classes": seconds / of_two, "accuracy": right}, arguments.json)
