"""Children of a fork: JAX's threads are missing there, so that computations are refused, and NumPy's go on."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")

# What is called in a child of its own: nothing, or the error, is the child's line. One that hangs is killed.
CHILDREN = """
import os, sys, warnings
import jax, jax.numpy as jnp, numpy as np
import pvmincq_jax as pvm
from pvmincq_jax.estimators import PVMinCqClassifier
from pvmincq_jax.voting.voters import StumpVoters
warnings.simplefilter("ignore")  # JAX's own, at each fork

x = np.random.default_rng(0).normal(size=(40, 2))
y = np.sign(x[:, 0])
one = {"radii": [0.5], "margins": [0.3], "gammas": [1.0, 2.0], "draws": 1}
votes = np.sign(x @ np.ones((2, 3)) + [0, 0.1, 0.2])
calls = {
    "fit": lambda: pvm.fit_validated(x, y, x, folds=2, **one),
    "transport": lambda: pvm.fit_transport_validated(x, y, x, **one),
    "estimator": lambda: PVMinCqClassifier(radius=0.5, margin=0.3, gamma=1.0).fit_domains(x, y, x),
    "pv_mincq": lambda: pvm.pv_mincq(x, y, x, radius=0.5, margin=0.3, gamma=1.0),
    "mincq": lambda: pvm.mincq(votes, y, 0.1),
    "max_margin": lambda: pvm.max_margin(votes, y),
    "c_bound": lambda: pvm.c_bound(votes, y, np.ones(3) / 3),
    "rbf_votes": lambda: pvm.rbf_votes(x, x, 1.0),
    "vote_factor": lambda: pvm.vote_factor(votes),
    "self_bound": lambda: pvm.self_bound(votes, y),
    "pac_bound_0": lambda: pvm.pac_bound_0(0.2, 100, 1.0),
    "soft_matching": lambda: pvm.soft_matching(x, x, 0.5, 0.1),
    "learn_map": lambda: pvm.learn_map(x, y, x, steps=2),
    "own functions": lambda: pvm.predict(given, x),
}
in_numpy = {
    "predict": lambda: pvm.predict(model, x),
    "match": lambda: pvm.match(x, x + 0.1, 0.5),
    "pv_curve": lambda: pvm.pv_curve(x, x + 0.1),
    "load_model": lambda: pvm.load_model(sys.argv[2]),
}
if sys.argv[1] == "used":
    model = calls["pv_mincq"]()
    given = pvm.pv_mincq(x, y, x, radius=0.5, margin=0.3, voters=[lambda x: jnp.tanh(x[:, 0])])
    pvm.save_model(model, sys.argv[2])
elif sys.argv[1] == "JAX used alone":
    jnp.ones(3) + 1
    calls, in_numpy = {"c_bound": calls["c_bound"]}, {}
else:
    calls, in_numpy = {}, {"c_bound": calls["c_bound"], "mincq": calls["mincq"]}
for name, call in (calls | in_numpy).items():
    child = os.fork()
    if not child:
        try:
            jax.block_until_ready(call())
            print(name, "done", flush=True)
        except RuntimeError as error:
            print(name, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def said(how, tmp_path):
    """What each child said; a child that waits for ever is a timeout here."""
    command = [sys.executable, "-W", "ignore", "-c", CHILDREN, how, str(tmp_path / "model.npz")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            lines = process.communicate(timeout=240)[0].splitlines()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    assert process.returncode == 0
    return lines


def test_computations_are_refused_after_a_fork_and_those_in_numpy_go_on(tmp_path):
    lines = said("used", tmp_path)
    assert len(lines) == 18
    for line in lines[:-4]:
        assert "forked from one in which JAX had computed" in line
        assert "get_context('spawn') or 'forkserver'" in line
    assert lines[-4:] == ["predict done", "match done", "pv_curve done", "load_model done"]


def test_jax_need_not_have_been_used_by_the_package(tmp_path):
    (line,) = said("JAX used alone", tmp_path)
    assert "forked from one in which JAX had computed" in line


def test_a_fork_before_the_first_computation_computes(tmp_path):
    assert said("unused", tmp_path) == ["c_bound done", "mincq done"]
