"""Your own files: labels for the rows of one table, learnt from the rows of another.

  python -m experiments.adapt --source a.csv --label sex --target b.csv
  python -m experiments.adapt --source a.csv --label sex --target b.csv --features bill flipper mass --out folder
  python -m experiments.adapt --source a.csv --label sex --target b.csv --ratio 0.3

Both files are CSV with a line of names; columns are found by name, in any order. The source has the column of labels,
of two classes or more; if the target has it too, it is not learnt from, and serves for an accuracy at the end. Columns
that are not numbers, that the target lacks or that are constant in the source are left out, and rows with missing
values (empty, NA, NaN, null, None, ?) too: a sentence says which. Features are scaled by the source's mean and
deviation.

It prints what has changed between the two (`pvmincq_jax.label_shift`, and the features that have moved most), what
`pvmincq_jax.estimators.PVTransportClassifier` chose, and how sure it is: on how many target rows the votes agree that
score nearly as well as the chosen one. No label of the target is seen, so that this is no accuracy. OUT/adapt.csv has
the target's rows with the predicted class and that agreement, OUT/adapt.md what was printed, OUT/adapt.png and .pdf
both samples in two principal components.
"""

import argparse
import csv
import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pvmincq_jax as pvm
from experiments.run.command import as_table, end, needs, new_file, number, write

with needs("experiments"):
    import matplotlib.pyplot as plt

    from pvmincq_jax.estimators import PVTransportClassifier

__all__ = ["Data", "Table", "agreement", "main", "prepare", "read_table"]

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}
# A class shift is rejected below this p-value; votes are near the best up to this multiple of its score; rows are
# contested on which fewer than this share of these votes agree.
REJECTED, NEAR, CONTESTED = 0.05, 1.2, 0.9
# Features that are listed, those that moved most.
LISTED = 8


class Table(NamedTuple):
    """A file: the places of its names, in their order, and its cells as text."""

    path: Path
    names: dict[str, int]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        """The cells under a name."""
        place = self.names[name]
        return [row[place].strip() for row in self.rows]


class Data(NamedTuple):
    """What is learnt from: features scaled by the source, labels as text, and which rows of the files these are.

    Attributes:
      features: names ``[d]``.
      source, labels: ``[m_s, d]``, ``[m_s]``.
      target, rows: ``[m_t, d]``, and the places of these rows in the target's file ``[m_t]``.
      mean, deviation: of the source's features, in their own units ``[d]``.
      remarks: sentences on what was left out.
    """

    features: list[str]
    source: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    rows: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    remarks: list[str]


def read_table(path: Path) -> Table:
    """Reads a CSV file with a line of names; a file that is none ends the command with a sentence."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        end(f"{path} could not be read: {getattr(error, 'strerror', None) or error}")
    if len(lines) < 2:
        end(f"{path} must have a line of names and rows below it; it has {len(lines)} lines")
    names = [name.strip() for name in lines[0]]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        end(f"{path} has several columns named {', '.join(map(repr, twice))}")
    for place, line in enumerate(lines[1:], 2):
        if len(line) != len(names):
            end(f"{path} has {len(names)} names, and {len(line)} cells in line {place}")
    return Table(path, {name: place for place, name in enumerate(names)}, lines[1:])


def _numbers(cells: list[str]) -> np.ndarray | str:
    """A column as numbers, NaN where one is missing; or the first cell that is none."""
    values = []
    for cell in cells:
        try:
            values.append(np.nan if cell.lower() in MISSING else float(cell))
        except ValueError:
            return cell
    return np.where(np.isfinite(values), values, np.nan)


def prepare(source: Table, target: Table, label: str, features: Sequence[str] | None = None) -> Data:
    """The columns that both files share as numbers, without rows that miss one.

    Args:
      source, target: the files.
      label: the name of the source's column of labels.
      features: the names to learn from; None for all that serve. One that is named and does not serve ends the command.

    Returns: a `Data`.
    """
    if label not in source.names:
        end(f"--label: {source.path} has no column {label!r}; there are {', '.join(source.names)}")
    remarks: list[str] = []
    columns: dict[str, list[np.ndarray]] = {}
    for name in features or [name for name in source.names if name != label]:
        why, pair = "", []
        for table in (source, target):
            values = _numbers(table.column(name)) if name in table.names else None
            if isinstance(values, np.ndarray):
                pair.append(values)
            elif values is None:
                why = why or f"{table.path} has no such column"
            else:
                why = why or f"{table.path} has {values!r} in it, which is no number"
        if not why and len(set(pair[0][np.isfinite(pair[0])])) < 2:
            why = f"it has one value only in {source.path}"
        if why and features:
            end(f"--features: {name!r} cannot be learnt from: {why}")
        if why:
            remarks.append(f"Column {name!r} is left out: {why}.")
        else:
            columns[name] = pair
    kept = list(columns)
    if not kept:
        end(" ".join(["no column is left to learn from.", *remarks]))
    x, z = (np.stack([columns[name][side] for name in kept], axis=1) for side in (0, 1))
    labels = np.array(source.column(label))
    known = np.array([cell.lower() not in MISSING for cell in labels])
    for table, sample, named in ((source, x, known), (target, z, np.full(len(z), True))):
        lost = ~named | np.any(np.isnan(sample), axis=1)
        if np.all(lost):
            end(f"every row of {table.path} misses a value: name the columns that are complete with --features")
        if np.any(lost):
            each = {label: ~named} | {name: np.isnan(sample[:, k]) for k, name in enumerate(kept)}
            told = ", ".join(f"{name} {np.sum(rows)}" for name, rows in each.items() if np.any(rows))
            remarks.append(f"{np.sum(lost)} of {len(lost)} rows of {table.path} miss values and are left out ({told}).")
    known &= np.all(np.isfinite(x), axis=1)
    rows = np.flatnonzero(np.all(np.isfinite(z), axis=1))
    x, z, labels = x[known], z[rows], labels[known]
    if len(set(labels)) < 2:
        end(f"--label: column {label!r} must hold two classes or more; its complete rows are all {str(labels[0])!r}")
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return Data(kept, (x - mean) / deviation, labels, (z - mean) / deviation, rows, mean, deviation, remarks)


def agreement(model: Any, predicted: np.ndarray) -> tuple[np.ndarray, int]:
    """Of the votes that score nearly as well as the chosen one, how many say the same.

    Args:
      model: a fitted `pvmincq_jax.estimators.PVTransportClassifier` that kept its sweep.
      predicted: the classes of its target points ``[m_t]``.

    Returns: their share at each target point ``[m_t]``, and how many votes these are.
    """
    values, scores = model.sweep_.target_values, model.choice_.scores
    near = np.isfinite(scores) & (scores <= model.choice_.score + (NEAR - 1) * abs(model.choice_.score))
    votes = (values[near] > 0).astype(int) if len(model.classes_) == 2 else np.argmax(values[:, near], axis=0)
    return np.mean(model.classes_[votes] == predicted, axis=0), int(np.sum(near))


def _changed(data: Data) -> list[str]:
    """What has changed: class shares and their test, and the features that moved most."""
    shift = pvm.label_shift(data.source, data.labels, data.target)
    classes, counts = np.unique(data.labels, return_counts=True)
    shares = counts / counts.sum()
    center, spread = data.target.mean(axis=0), data.target.std(axis=0)
    order = np.argsort(-np.abs(center), kind="stable")[:LISTED]
    rows = {
        data.features[k]: [
            f"{data.mean[k]:.4g} ± {data.deviation[k]:.3g}",
            f"{data.mean[k] + center[k] * data.deviation[k]:.4g} ± {spread[k] * data.deviation[k]:.3g}",
            f"{center[k]:+.2f}",
        ]
        for k in order
    }
    told = ", ".join(f"{name} {old:.0%} to {new:.0%}" for name, old, new in zip(classes, shares, shift.shares))
    verdict = (
        f"Other class shares alone do not explain the target (p = {shift.p_value:.3f}): the features have changed, too."
        if shift.p_value < REJECTED
        else f"Other class shares alone explain the target (p = {shift.p_value:.3f}): {told}. Nothing else has changed "
        "that the test can see."
    )
    shown = f", the {LISTED} that moved most" if len(data.features) > LISTED else ""
    return [
        verdict,
        "",
        f"Features, mean ± deviation{shown}; the last column counts deviations of the source.",
        "",
        as_table("feature", ["source", "target", "moved by"], rows),
    ]


def _chosen(model: Any, votes: int, share: np.ndarray) -> list[str]:
    """What was chosen, and how sure it is."""
    choice, scores = model.choice_, model.choice_.scores
    able = scores[np.isfinite(scores)]
    scale = "the source on the target's mean and deviation" if choice.match_moments else "the source as it is"
    if choice.identity:
        told = f"learnt from {scale}, without matching" + ("" if model.adapted_ else ": not to adapt was judged best")
    else:
        told = f"learnt from {scale}, moved along matchings of radius {choice.radius:.3g} (PV {model.pv_:.2f})"
    contested = int(np.sum(share < CONTESTED))
    return [
        f"Chosen among {able.size} votes without a label of the target: {told}; margin {choice.margin:g}, gamma "
        f"{choice.gamma:.3g}. Its criterion is {choice.score:.3f}, the median of all {np.median(able):.3f}.",
        "",
        f"{votes} votes score within {NEAR - 1:.0%} of it. On {len(share) - contested} of {len(share)} target rows at "
        f"least {CONTESTED:.0%} of them agree with the prediction; {contested} rows are contested. Agreement is no "
        "accuracy: votes can be wrong together, and a mirror image of the classes looks right to all of them.",
    ]


def draw(data: Data, model: Any, predicted: np.ndarray, share: np.ndarray) -> Any:
    """Both samples in two principal components: as they are, and the target by predicted class."""
    both = np.concatenate([data.source, data.target])
    axes = np.linalg.svd(both - both.mean(axis=0), full_matrices=False)[2][:2]
    # One feature: the second component is 0.
    axes = np.vstack([axes, np.zeros((2 - len(axes), axes.shape[1]))])
    source, target = ((sample - both.mean(axis=0)) @ axes.T for sample in (data.source, data.target))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.2), sharex=True, sharey=True)
    shades = plt.get_cmap("viridis")(np.linspace(0, 0.85, len(model.classes_)))
    left.scatter(*target.T, s=14, marker="x", color="0.6", linewidths=0.8, label="target")
    for name, marker, shade in zip(model.classes_, "osD^v<>pP*hX" * len(model.classes_), shades):
        look: dict[str, Any] = {"s": 18, "marker": marker, "color": shade, "linewidths": 0.5}
        left.scatter(*source[data.labels == name].T, label=f"source, {name}", **look)
        right.scatter(*target[predicted == name].T, label=f"predicted {name}", **look)
    contested = share < CONTESTED
    right.scatter(*target[contested].T, s=70, facecolors="none", edgecolors="black", label="contested")
    left.set(title="as they are", xlabel="first principal component", ylabel="second principal component")
    right.set(title="the target, predicted", xlabel="first principal component")
    for axis in (left, right):
        legend = axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, fontsize="small")
        for text in legend.get_texts():
            # Names of classes: a $ in them begins no formula.
            text.set_parse_math(False)
    figure.tight_layout()
    return figure


def _ratio(text: str) -> str | float:
    """The type of --ratio."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if text not in ("source", "estimated") and not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be source, estimated, or a share between 0 and 1; it is {text!r}")
    return text if text in ("source", "estimated") else value


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the files, learns, prints and writes."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.adapt", description=__doc__, formatter_class=shape)
    parser.add_argument("--source", type=Path, required=True, help="CSV file with labels")
    parser.add_argument("--target", type=Path, required=True, help="CSV file whose rows are to be labelled")
    parser.add_argument("--label", required=True, help="name of the source's column of labels")
    parser.add_argument("--features", nargs="+", metavar="NAME", help="columns to learn from (default: all that serve)")
    told = "share of the class that is second in the alphabet in the target, or estimated (default: source, as there)"
    parser.add_argument("--ratio", type=_ratio, default="source", help=told)
    parser.add_argument("--seed", type=number(0), default=0, help="of matchings (default 0)")
    parser.add_argument("--out", type=Path, default=Path("results") / "adapt", help="folder (default results/adapt)")
    options = parser.parse_args(arguments)
    target = read_table(options.target)
    data = prepare(read_table(options.source), target, options.label, options.features)
    try:
        model = PVTransportClassifier(ratio=options.ratio, random_state=options.seed)
        model.fit_domains(data.source, data.labels, data.target)
    except ValueError as error:
        end(str(error))
    predicted = model.predict(data.target)
    share, votes = agreement(model, predicted)
    counts = ", ".join(f"{name} {np.sum(predicted == name)}" for name in model.classes_)
    sizes = f"{len(data.source)} source and {len(data.target)} target rows of {len(data.features)} features."
    text = [sizes, *data.remarks, "", *_changed(data), "", *_chosen(model, votes, share), "", f"Predicted: {counts}."]
    if options.label in target.names:
        truth = np.array(target.column(options.label))[data.rows]
        known = np.array([cell.lower() not in MISSING for cell in truth])
        if np.any(known):
            right = np.mean(predicted[known] == truth[known])
            text.append(
                f"Accuracy on the {np.sum(known)} target rows with a label, which was not learnt from: {right:.1%}."
            )
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        end(f"--out: {options.out} could not be made: {error.strerror or error}")
    answers = dict(zip(data.rows.tolist(), zip(predicted, share)))
    with new_file(options.out / "adapt.csv") as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*target.names, f"predicted_{options.label}", "agreement"])
        for place, row in enumerate(target.rows):
            name, agreed = answers.get(place, ("", None))
            writer.writerow([*row, name, "" if agreed is None else f"{agreed:.3f}"])
    write(options.out, "adapt", "\n".join(text), functools.partial(draw, data, model, predicted, share))


if __name__ == "__main__":
    main()
