"""The paper's figures from live data, and what a researcher looks at: regions, PV curve, criterion, weights.

  python -m experiments.figures --out DIR                    all of them, as PNG and PDF
  python -m experiments.figures --only domains transfer      some of them
  python -m experiments.figures --task 60 --seed 7           of another task, another draw

The regions take the time: every method is tuned over its whole grid, as in the table.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.run.cache import switch_cache_on
from experiments.run.cells import Settings
from experiments.run.command import names, needs, number
from experiments.run.engine import on_one_core
from experiments.run.methods import METHODS
from pvmincq_jax.datasets import TASKS

with needs("experiments"):
    from experiments.run import pictures
    from experiments.run.style import Scene, save

__all__ = ["FIGURES", "main"]

FIGURES: dict[str, Callable[[Scene], Any]] = {
    "domains": pictures.domains,
    "transfer": pictures.transfer,
    "reverse": pictures.reverse,
    "pv_curve": pictures.pv_curve,
    "criterion": pictures.criterion,
    "weights": pictures.weights,
    "regions": pictures.regions,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    defaults = Settings()
    parser.add_argument("--out", type=Path, default=Path("results/figures"), help="folder (default results/figures)")
    parser.add_argument("--task", default="40", choices=TASKS, help="of all figures but the domains (default 40)")
    parser.add_argument("--seed", type=number(0), default=defaults.seed, help=f"of the data (default {defaults.seed})")
    parser.add_argument(
        "--only", nargs="+", action=names(FIGURES), default=list(FIGURES), help=f"of {' '.join(FIGURES)} (default: all)"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        action=names(METHODS),
        default=list(METHODS),
        help=f"whose regions, of {' '.join(METHODS)} (default: all)",
    )
    parser.add_argument("--per-class", type=number(5), default=defaults.per_class, help="source and target points")
    parser.add_argument("--test-size", type=number(2), default=defaults.test_size, help="fresh target points")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the options and writes the figures."""
    parser = _parser()
    options = parser.parse_args(arguments)
    switch_cache_on()
    settings = Settings(options.seed, options.per_class, options.test_size)
    scene = Scene(options.task, settings, tuple(options.methods))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {options.out}: {error}")
    for count, name in enumerate(options.only, 1):
        began = time.perf_counter()
        save(options.out, name, partial(FIGURES[name], scene))
        seconds = time.perf_counter() - began
        print(
            f"[{count}/{len(options.only)}] {options.out / name}.png .pdf in {seconds:.1f} s",
            file=sys.stderr,
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(on_one_core(main))
