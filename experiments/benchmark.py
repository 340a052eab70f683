"""Benchmarks: ratios of things run side by side in one process, best of several runs.

python -m experiments.benchmark qp | matching | start | sweep | devices | fit | classes | compile [--json]

The quadratic programs are timed on one core, theirs and ours alike; the others use what the machine has.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from experiments.run.command import needs
from experiments.run.engine import on_one_core

_BENCHMARKS = {
    "classes": "fits of the transport form on as many points of two, three and five classes",
    "compile": "what each option of the compiler saves, for the program of a grid and for a user's own",
    "devices": "a grid on one device, over a mesh of a device for each core, and in threads",
    "fit": "whole fits by default at a user's sizes, beside an SVC, OT and boosting, or beside another checkout",
    "matching": "matchings beside SciPy's Dinic, the PV curve, and many draws from one graph",
    "qp": "MinCq beside PIQP, cvxopt, Clarabel, DAQP, qpax, Moreau and BoxOSQP, and how its time grows with the voters",
    "start": "seconds of a fresh process to its first solution and its first sweep",
    "sweep": "PV-MinCq over a whole grid, beside the same grid in a loop over PIQP and cvxopt",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one benchmark; each lives in ``experiments/bench/NAME.py`` as ``add_arguments`` and ``run``."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmark", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name, text in _BENCHMARKS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print one JSON object a row")
        importlib.import_module(f"experiments.bench.{name}").add_arguments(command)
    parsed = parser.parse_args(arguments)
    with needs("test"):
        importlib.import_module(f"experiments.bench.{parsed.name}").run(parsed)


if __name__ == "__main__":
    if "qp" in sys.argv[1:]:
        sys.exit(on_one_core(main))
    main()
