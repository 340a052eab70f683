"""Drawn species: two Gaussian classes in four dimensions, and the same moved and scaled at random.

On these, and not on the penguins, the rules of the penguins' command were settled (seeds from 1000 on). Sizes are those
of the penguins' samples.
"""

import numpy as np

from pvmincq_jax.datasets import DomainTask

__all__ = ["SIZES", "drawn_task"]

# Source and target: the most unequal pair of the penguins, one in between, and the most equal.
SIZES = ((146, 34), (119, 73), (68, 59))
# Standard deviations within a class, along axes in random directions.
_SPREAD = np.array([1.5, 0.9, 0.6, 0.4])
# Mahalanobis distance of the classes: the best classifier is right in 93 % of cases.
_APART = 3.0


def drawn_task(source_size: int, target_size: int, seed: int, test_size: int = 600) -> DomainTask:
    """Draws one pair of domains of m_s and m_t points, scaled on the source.

    The target is moved by 3 to 6 units, and each of its features is scaled by a factor near 1.
    """
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    root = (axes * _SPREAD) @ axes.T
    half = rng.normal(size=4)
    half *= _APART / 2 / np.linalg.norm(np.linalg.solve(root, half))
    move = rng.normal(size=4)
    move *= rng.uniform(3, 6) / np.linalg.norm(move)
    scale = np.exp(rng.normal(0, 0.15, 4))

    def draw(size: int, moved: bool) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.permutation(np.where(np.arange(size) % 2 == 0, 1.0, -1.0))
        points = labels[:, None] * half + rng.normal(size=(size, 4)) @ root.T
        return points * scale + move if moved else points, labels

    source, labels = draw(source_size, False)
    target, _ = draw(target_size, True)
    test, test_labels = draw(test_size, True)
    mean, deviation = source.mean(axis=0), source.std(axis=0)
    source, target, test = ((x - mean) / deviation for x in (source, target, test))
    return DomainTask(source, labels, target, test, test_labels)
