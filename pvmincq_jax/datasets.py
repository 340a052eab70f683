"""The inter-twining moons: one labelled source domain, and targets that are rotated or translated copies of it.

The paper's generator is not published. This one takes two unit half-circles, centred on their joint midpoint, adds
Gaussian noise, and rotates anticlockwise about that midpoint, which gives the paper's shape of results. Target and
test points are drawn afresh, never moved copies of the source points, and rows come in random order: rows sorted by
class would let a matching read the target's labels off the row numbers.
"""

from typing import Any, NamedTuple

import numpy as np

from pvmincq_jax._checks import (
    check_count,
    check_instance,
    check_not_negative,
    check_number,
    check_seed,
    check_weights,
)

__all__ = ["ANGLES", "TASKS", "TRANSLATION", "DomainTask", "draw_moons", "moons_task"]

ANGLES = (20, 30, 40, 50, 60, 70, 80)
TASKS = (*(str(angle) for angle in ANGLES), "translation")
# As in the paper, the nearest source points of all target points belong to one moon. Of the translations for which that
# holds this is about the shortest: 1.5 is needed in this direction, from 1.75 to 3.6 in others.
TRANSLATION = (-0.9, 1.5)
_MIDPOINT = np.array([0.5, 0.25])


class DomainTask(NamedTuple):
    """One adaptation task; ``test_labels`` are for the final figure only.

    Attributes:
      source: ``[m_s, d]``.
      source_labels: ``[m_s]`` in {-1, +1}.
      target: ``[m_t, d]``, unlabelled.
      test: fresh points of the target domain ``[m_test, d]``.
      test_labels: ``[m_test]`` in {-1, +1}.
    """

    source: np.ndarray
    source_labels: np.ndarray
    target: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


def draw_moons(
    per_class: int,
    rng: np.random.Generator,
    *,
    angle: float = 0.0,
    translation: tuple[float, float] = (0.0, 0.0),
    noise: float = 0.05,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws a sample of the two moons of section 4, rows in random order.

    Args:
      per_class: points in each moon.
      rng: where the randomness comes from.
      angle: anticlockwise, in degrees, about the midpoint of the moons.
      translation: added after the rotation.
      noise: standard deviation of the Gaussian noise in each coordinate.

    Returns: points ``[2 per_class, 2]`` and labels ``[2 per_class]`` in {-1, +1}.

    Example:
      >>> points, labels = draw_moons(3, np.random.default_rng(0), angle=40)
      >>> points.shape, sorted(labels.tolist())
      ((6, 2), [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0])
    """
    check_instance("rng", rng, np.random.Generator, "numpy.random.default_rng")
    check_number("angle", angle)
    check_number("noise", noise, check_not_negative)
    check_weights("translation", translation, 2, "feature")
    upper, lower = rng.uniform(0, np.pi, (2, check_count("per_class", per_class, 1)))
    moons = np.array([[np.cos(upper), np.sin(upper)], [1 - np.cos(lower), 0.5 - np.sin(lower)]])
    points, labels = np.moveaxis(moons, 1, 2).reshape(-1, 2), np.repeat([1.0, -1.0], per_class)
    points = points - _MIDPOINT + rng.normal(0, noise, points.shape)
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    order = rng.permutation(2 * per_class)
    return (points @ rotation.T + np.asarray(translation))[order], labels[order]


def moons_task(
    task: str,
    seed: int,
    *,
    per_class: int = 150,
    test_size: int = 1500,
    noise: float = 0.05,
    translation: tuple[float, float] = TRANSLATION,
) -> DomainTask:
    """One run of one of the paper's tasks (section 4): "20" to "80" are rotations, "translation" is the translation.

    Args:
      task: any number of degrees as text, or "translation".
      seed: equal seeds give equal samples; tasks of one seed share their source sample.
      per_class: points per class in the source, and in the target.
      test_size: fresh target points for the final figure.
      noise: of both domains.
      translation: of the task of this name.

    Returns: a `DomainTask`.

    Example:
      >>> task = moons_task("40", seed=7)
      >>> task.source.shape, task.target.shape, task.test.shape
      ((300, 2), (300, 2), (1500, 2))
    """
    check_weights("translation", translation, 2, "feature")
    sizes = check_count("per_class", per_class, 1), check_count("test_size", test_size, 2) // 2
    move: dict[str, Any] = {"translation": translation}
    if not (isinstance(task, str) and task == "translation"):
        try:
            move = {"angle": float(task)}
            check_number("task", move["angle"])
        except (TypeError, ValueError):
            raise ValueError(f"task must be a number of degrees or 'translation'; it is {task!r}") from None
    seeds = np.random.SeedSequence(check_seed("seed", seed)).spawn(3)
    source_rng, target_rng, test_rng = map(np.random.default_rng, seeds)
    source, source_labels = draw_moons(sizes[0], source_rng, noise=noise)
    target, _ = draw_moons(sizes[0], target_rng, noise=noise, **move)
    test, test_labels = draw_moons(sizes[1], test_rng, noise=noise, **move)
    return DomainTask(source, source_labels, target, test, test_labels)
