"""A small run of the figures' command: every figure is written, as PNG and PDF, without a warning."""

import subprocess
import sys

import matplotlib.pyplot as plt
import pytest

from experiments import figures
from experiments.run import pictures, style
from experiments.run.cells import Settings

SMALL = ["--per-class", "12", "--test-size", "60", "--methods", "SVM", "PV-MinCq", "PV-MinCq+"]


@pytest.mark.usefixtures("one_gamma")
def test_all_figures(tmp_path, capsys):
    figures.main(["--out", str(tmp_path / "new"), "--task", "30", "--seed", "5", *SMALL])
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {f"{name}.{ending}" for name in figures.FIGURES for ending in ("png", "pdf")}
    assert all(path.stat().st_size > 2000 for path in (tmp_path / "new").iterdir())
    assert f"[{len(figures.FIGURES)}/{len(figures.FIGURES)}]" in capsys.readouterr().err
    assert plt.get_fignums() == []


def test_only_some(tmp_path):
    figures.main(["--out", str(tmp_path), "--only", "domains", "transfer", "--task", "translation", *SMALL])
    assert {path.stem for path in tmp_path.iterdir()} == {"domains", "transfer"}


def test_texts_of_a_figure_do_not_overlap():
    scene = style.Scene("50", Settings(per_class=20, test_size=60), ("SVM", "PV-SVM"))
    with plt.rc_context(style.STYLE):
        figure = pictures.regions(scene)
        figure.canvas.draw()
        boxes = [axis.title.get_window_extent() for axis in figure.axes]
        boxes += [text.get_window_extent() for legend in figure.legends for text in legend.get_texts()]
        boxes.append(figure._suptitle.get_window_extent())
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
        plt.close(figure)


def test_the_command_itself(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "experiments.figures", "--out", str(tmp_path), "--only"]
    assert subprocess.run([*command, "domains"], capture_output=True, check=False).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"domains.png", "domains.pdf"}
