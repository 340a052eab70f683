"""Files of models: damaged and forged ones are refused with a sentence, and a file is replaced as a user expects."""

import io
import os
import stat
import tracemalloc
import zipfile

import jax
import numpy as np
import pytest

import pvmincq_jax as pvm
from pvmincq_jax.adaptation.model import ClassNames
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.voting.families import JoinedVoters, ViewVoters
from pvmincq_jax.voting.voters import OutputVoters


def make_model(kind):
    rng = np.random.default_rng(0)
    kernels = pvm.GaussianVoters(rng.normal(size=(4, 2)), np.float64(2.0))
    stumps = pvm.StumpVoters(np.array([0, 1, 1]), np.array([0.5, -1.0, 2.0]), 10)
    voters, count = {
        "kernels": (kernels, 4),
        "stumps": (stumps, 3),
        "outputs": (OutputVoters(np.float32(2.0)), 5),
        "views": (ViewVoters((kernels, stumps)), 7),
        "committee": (JoinedVoters((ViewVoters((kernels, stumps)), ViewVoters((stumps, kernels)))), 14),
        "classes": (kernels, 4),
    }[kind]
    rows, each = ((3, count), (3,)) if kind == "classes" else ((count,), ())
    absent = kind == "committee"
    return pvm.PVMinCq(
        voters=voters,
        weights=rng.normal(size=rows),
        margin=np.full(each, 0.1),
        mu_max=None if absent else np.full(each, 0.3),
        c_bound=np.full(each, 0.5),
        kkt_residual=None if absent else np.full(each, 1e-9),
        radius=None if absent else np.array([0.5, 0.7]) if kind == "views" else np.float64(0.5),
        pv=np.float64(0.25),
        labels=rng.choice([-1.0, 1.0], size=(*each, 6)),
        label_weights=np.ones(6),
        pairs=ExpectedMatching(np.arange(3), np.arange(3), np.ones(3)),
        classes=ClassNames(["ash", "beech", "cedar"]) if kind == "classes" else ClassNames([3, 7]) if absent else None,
    )


KINDS = ["kernels", "stumps", "outputs", "views", "committee", "classes"]


def check_equal(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    assert first.classes == second.classes
    for old, new in zip(jax.tree.leaves(first), jax.tree.leaves(second)):
        old = np.asarray(old)
        assert (old.dtype, old.shape, old.tobytes()) == (new.dtype, new.shape, new.tobytes())


def content_of(kind, tmp_path):
    pvm.save_model(make_model(kind), tmp_path / "whole.npz")
    return (tmp_path / "whole.npz").read_bytes()


def check_refused(path, message=""):
    with pytest.raises(ValueError, match=message) as refused:
        pvm.load_model(path)
    said = str(refused.value)
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < 400 + len(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_come_back_to_the_bit(kind, tmp_path):
    pvm.save_model(make_model(kind), tmp_path / "model.npz")
    check_equal(make_model(kind), pvm.load_model(tmp_path / "model.npz"))


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_and_truncated_bytes_are_refused_or_change_nothing(kind, tmp_path):
    whole, model, path = content_of(kind, tmp_path), make_model(kind), tmp_path / "damaged.npz"
    rng = np.random.default_rng(KINDS.index(kind))
    refused = 0
    for turn in range(300):
        damaged = bytearray(whole)
        if turn % 5 == 0:
            del damaged[rng.integers(len(whole)) :]
        elif turn % 5 == 1:
            # The directory, where the names and sizes of all members are.
            damaged[-1 - rng.integers(len(whole) // 4)] ^= 1 << rng.integers(8)
        else:
            for place in rng.integers(len(whole), size=rng.integers(1, 4)):
                damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            loaded = pvm.load_model(path)
        except ValueError:
            refused += 1
        else:
            check_equal(model, loaded)
    assert refused > 200


def forged(tmp_path, kind, **changes):
    """A file whose checksums are right and whose arrays are others; None leaves one out."""
    with np.load(io.BytesIO(content_of(kind, tmp_path))) as stored:
        arrays = {name: stored[name] for name in stored.files} | changes
    path = tmp_path / "forged.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("kernels", "weights", np.full(4, np.nan), "weights holds NaN"),
        ("kernels", "weights", np.ones(4) + 1j, "weights has the dtype complex128"),
        ("kernels", "weights", np.ones(5), r"weights has the shape \(5,\)"),
        ("kernels", "weights", np.ones((2, 4)), r"weights has the shape \(2, 4\)"),
        ("kernels", "weights", np.ones(0), r"weights has the shape \(0,\)"),
        ("kernels", "weights", np.array(["a"] * 4), "weights has the dtype"),
        ("kernels", "voters.centers", np.full((4, 2), np.inf), "centers holds NaN or infinity"),
        ("kernels", "voters.centers", None, "lacks voters.centers"),
        ("kernels", "voters.gamma", np.float64(-1.0), "gamma is not above 0"),
        ("kernels", "voters.kind", np.array(["GaussianVoters"] * 2), "voters.kind has the shape"),
        ("kernels", "voters.kind", np.array(7), "voters.kind has the dtype int64"),
        ("kernels", "voters.kind", np.array("StumpVoters"), "lacks voters.features"),
        ("kernels", "margin", np.ones(3), "margin has the shape"),
        ("kernels", "radius", np.float64(np.nan), "radius holds NaN"),
        ("kernels", "pairs.source", np.ones(3), "pairs.source has the dtype float64"),
        ("kernels", "pairs.source", np.array([0, -1, 2]), "pairs.source is negative"),
        ("kernels", "pairs.weights", np.ones(2), "pairs.weights has the shape"),
        ("kernels", "labels", np.ones(5), "labels and label_weights have different lengths"),
        ("kernels", "none", np.array(["weights", "classes"]), "none names 'classes', 'weights'"),
        ("kernels", "none", np.array(["surprise"]), "none names 'surprise'"),
        ("kernels", "none", np.array([3]), "none has the dtype"),
        ("kernels", "further", np.ones(3), "no model has 'further'"),
        ("stumps", "voters.features", np.array([0, -2, 1]), "features is negative"),
        ("stumps", "voters.features", np.array([0.0, 1.0, 1.0]), "features has the dtype"),
        ("outputs", "voters.bound", np.float64(0.0), "bound is not above 0"),
        ("views", "voters.families.length", np.array(10**15), "lacks voters.families.2.kind"),
        ("views", "voters.families.length", np.array(-1), "has no families"),
        ("views", "voters.families.length", np.array("2"), "length has the dtype"),
        ("views", "voters.families.0.kind", np.array("x" * 10000), "names the voters 'xxx"),
        ("classes", "classes", np.array(["a", "b"]), "classes has the shape"),
        ("classes", "classes", np.ones((3, 2)), "classes has the shape"),
    ],
)
def test_forged_fields_are_refused(kind, name, value, message, tmp_path):
    check_refused(forged(tmp_path, kind, **{name: value}), message)


def test_families_nested_without_end_are_refused(tmp_path):
    more = {"voters.centers": None, "voters.gamma": None}
    prefix = "voters"
    for _ in range(2000):
        more |= {f"{prefix}.kind": np.array("JoinedVoters"), f"{prefix}.families.length": np.array(1)}
        prefix = f"{prefix}.families.0"
    check_refused(forged(tmp_path, "kernels", **more), "more than 4 levels of families")


def test_a_small_file_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "small.npz"
    with np.load(io.BytesIO(content_of("kernels", tmp_path))) as stored:
        arrays = {name: stored[name] for name in stored.files}
    np.savez_compressed(path, **arrays | {"labels": np.zeros(30_000_000), "label_weights": np.zeros(30_000_000)})
    assert path.stat().st_size < 1_000_000
    tracemalloc.start()
    check_refused(path, "compressed")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("shape", "message"),
    [("(400000000,)", "which is not what"), ("(-2, -2)", "which is not what"), ("(1e3,)", "cannot be read"),
     ("[" * 90 + "]" * 90, "cannot be read"), ("(4,)" + " " * 500, "cannot be read"), ("(4", "cannot be read")],
)  # fmt: skip
def test_headers_are_checked_before_arrays_are_read(shape, message, tmp_path):
    """A member that says another shape than it has; its checksum is right."""
    path, whole = tmp_path / "forged.npz", io.BytesIO(content_of("kernels", tmp_path))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    lied = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + np.ones(4).tobytes()
    with zipfile.ZipFile(whole) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            new.writestr(member, lied if member == "weights.npy" else old.read(member))
    check_refused(path, message)


def test_two_members_of_one_name_are_refused(tmp_path):
    path = tmp_path / "twice.npz"
    path.write_bytes(content_of("kernels", tmp_path))
    with zipfile.ZipFile(path) as archive:
        first = archive.read("weights.npy")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("weights.npy", first)
    check_refused(path, "directory is damaged")


@pytest.mark.parametrize("thing", [0, 7, None, io.BytesIO()])
def test_a_path_is_a_name(thing):
    """An integer would be taken for an open file, and closed."""
    before = os.fstat(0) if thing == 0 else None
    for call in (pvm.load_model, lambda path: pvm.save_model(make_model("kernels"), path)):
        with pytest.raises(ValueError, match="path must be the name of a file; it is"):
            call(thing)
    if before is not None:
        assert os.fstat(0).st_ino == before.st_ino


def test_folders_pipes_and_missing_files(tmp_path):
    check_refused(tmp_path, "not a regular file")
    with pytest.raises(ValueError, match="not a regular file"):
        pvm.save_model(make_model("kernels"), tmp_path)
    with pytest.raises(FileNotFoundError):
        pvm.load_model(tmp_path / "missing.npz")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        check_refused(tmp_path / "pipe", "not a regular file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": np.full(4, np.nan)}, "weights holds NaN"),
        ({"weights": np.ones(3)}, "weights has the shape"),
        ({"labels": np.array([None] * 6)}, "labels has the dtype object"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(change, message, tmp_path):
    with pytest.raises(ValueError, match=f"model cannot be kept in a file: {message}"):
        pvm.save_model(make_model("kernels")._replace(**change), tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_a_file_without_the_learning_sample(tmp_path):
    """Nobody need hand on the labels that were learnt from."""
    model = make_model("kernels")._replace(labels=None, label_weights=None)
    pvm.save_model(model, tmp_path / "model.npz")
    check_equal(model, pvm.load_model(tmp_path / "model.npz"))


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.parametrize("rights", [0o600, 0o640, 0o664])
def test_permissions_are_kept(rights, tmp_path):
    path, usual = tmp_path / "model.npz", os.umask(0o022)
    try:
        pvm.save_model(make_model("kernels"), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(rights)
        pvm.save_model(make_model("stumps"), path)
    finally:
        os.umask(usual)
    assert stat.S_IMODE(path.stat().st_mode) == rights
    check_equal(make_model("stumps"), pvm.load_model(path))


def test_read_only_files_stay(tmp_path):
    path = tmp_path / "model.npz"
    before = content_of("kernels", tmp_path)
    path.write_bytes(before)
    path.chmod(0o444)
    with pytest.raises(PermissionError, match=r"read-only, and stays as it is.*model\.npz"):
        pvm.save_model(make_model("stumps"), path)
    assert path.read_bytes() == before
    assert {one.name for one in tmp_path.iterdir()} == {"model.npz", "whole.npz"}


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_links_are_followed(tmp_path):
    (tmp_path / "store").mkdir()
    link, relative = tmp_path / "link.npz", os.path.join("store", "model.npz")
    link.symlink_to(relative)
    for kind in ("kernels", "stumps"):
        # At first the link leads to nothing.
        pvm.save_model(make_model(kind), link)
        assert os.readlink(link) == relative
        check_equal(make_model(kind), pvm.load_model(tmp_path / "store" / "model.npz"))
    assert [one.name for one in (tmp_path / "store").iterdir()] == ["model.npz"]
    circle = tmp_path / "circle"
    circle.symlink_to("circle")
    with pytest.raises(OSError, match="circle"):
        pvm.save_model(make_model("kernels"), circle)
    assert circle.is_symlink()


def test_long_names(tmp_path):
    name = "m" * 251 + ".npz"
    pvm.save_model(make_model("kernels"), tmp_path / name)
    assert os.listdir(tmp_path) == [name]
    check_equal(make_model("kernels"), pvm.load_model(os.fsencode(tmp_path / name)))
