"""Models in files: ``.npz`` archives of plain arrays, all of which are checked before a model is made of them.

A file that is damaged or forged is refused with one sentence. Nothing in it is executed, and nothing in it is
compressed, so that reading a file takes no more memory than a small multiple of its size.
"""

import contextlib
import errno
import io
import math
import os
import stat
import struct
import tokenize
import uuid
import zipfile
from typing import Any

import numpy as np

from pvmincq_jax.adaptation.model import ClassNames, PVMinCq
from pvmincq_jax.matching.matching import ExpectedMatching
from pvmincq_jax.voting.families import JoinedVoters, ViewVoters
from pvmincq_jax.voting.voters import GaussianVoters, OutputVoters, StumpVoters

__all__ = ["load_model", "save_model"]

Arrays = dict[str, np.ndarray]

_FAMILIES = {kind.__name__: kind for kind in (GaussianVoters, StumpVoters, OutputVoters, ViewVoters, JoinedVoters)}
# Levels of families in families: a committee of models of views has three.
_DEEPEST = 4
# Bytes of an array's header; NumPy writes 118 for an array of at most two axes.
_LONGEST_HEADER = 256
# What zipfile raises at damaged archives.
_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, OverflowError, struct.error)
# Kinds of NumPy's dtypes.
_TEXT, _INTEGERS, _NUMBERS, _NAMES = "U", "iu", "iuf", "biufSU"


def save_model(model: PVMinCq, path: str | os.PathLike) -> None:
    """Writes a model to an ``.npz`` file, as plain arrays (not in the paper).

    Voters that are functions, or families of your own, are not written: whoever loads the model passes them again. The
    file is written under another name first, so that an older one is replaced by a whole one or not at all. The new
    file has the permissions of the older one; a read-only one is not replaced. Of a symbolic link, the file that it
    leads to is replaced.

    Args:
      model: a `PVMinCq`, such as the ``model`` of a fit or the ``model_`` of a classifier.
      path: where to; nothing is added to the name.

    Returns: nothing.

    Example:
      >>> import os, tempfile
      >>> import pvmincq_jax as pvm
      >>> source = np.array([[0.0], [0.2], [1.0], [1.2]])
      >>> model = pvm.pv_mincq(source, np.array([1, 1, -1, -1]), source + 0.1, radius=0.15, margin=0.5, gamma=5.0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_model(model, os.path.join(folder, "vote.npz"))
      ...     again = load_model(os.path.join(folder, "vote.npz"))
      >>> np.array_equal(again.weights, model.weights)
      True
    """
    if not isinstance(model, PVMinCq):
        raise ValueError(
            f"model must be a PVMinCq; it is of type {type(model).__name__}. A fit has one as .model, a classifier as "
            ".model_, and model_at takes one from a grid"
        )
    fields = model._asdict()
    arrays: Arrays = {"none": np.array([name for name, value in fields.items() if value is None], str)}
    for name, value in fields.items():
        if value is not None:
            arrays |= {name: np.asarray(value)} if isinstance(value, ClassNames) else _arrays(name, value)
    try:
        _make_model(dict(arrays), model.voters if _own_families(arrays) else None)
    except ValueError as error:
        raise ValueError(f"model cannot be kept in a file: {error}") from None
    _replace(_file_name(path), arrays)


def load_model(path: str | os.PathLike, *, voters: Any = None) -> PVMinCq:
    """Reads a model that `save_model` wrote; nothing in the file is executed (not in the paper).

    Args:
      path: where from.
      voters: needed where they are functions, or a family of your own: ``model.voters`` itself, or a family of the same
        class with the same points and parameters. Only the class is checked.

    Returns: the same `PVMinCq`, to the bit. A file that is none, or that is damaged, is a ValueError.

    Example:
      >>> import tempfile
      >>> import pvmincq_jax as pvm
      >>> points, given = np.array([[-1.0], [1.0]]), [lambda x: np.tanh(x[:, 0])]
      >>> model = pvm.pv_mincq(points, np.array([-1, 1]), points, radius=0.5, margin=0.5, voters=given)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     save_model(model, f"{folder}/vote.npz")
      ...     load_model(f"{folder}/vote.npz", voters=model.voters).voters is model.voters
      True
    """
    name = _file_name(path)
    try:
        arrays = _read_archive(_read_bytes(name))
        own = _own_families(arrays)
    except ValueError as error:
        raise ValueError(f"path {name} is not a saved PVMinCq: {error}") from None
    if voters is None and own:
        raise ValueError(
            f"path {name} names the voters {own[0]!r:.60}, which cannot be read from a file: pass the model's voters to"
            " load_model as voters="
        )
    kind = str(arrays["voters.kind"])
    if voters is not None and type(voters).__name__ != kind:
        raise ValueError(f"voters must be a {kind:.60}, as in the file; it is of type {type(voters).__name__}")
    try:
        return _make_model(arrays, voters)
    except ValueError as error:
        raise ValueError(f"path {name} is not a saved PVMinCq: {error}") from None


def _file_name(path: str | os.PathLike) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        raise ValueError(f"path must be the name of a file; it is {path!r}") from None


def _arrays(prefix: str, value: Any) -> Arrays:
    """Named arrays of a family or of pairs, nested ones by longer names."""
    kind = {f"{prefix}.kind": np.asarray(type(value).__name__)}
    if hasattr(value, "votes") and type(value) not in _FAMILIES.values():
        return kind
    if not isinstance(value, tuple):
        return {prefix: np.asarray(value)}
    fields = getattr(value, "_fields", None)
    named = {f"{prefix}.length": np.asarray(len(value))} if fields is None else kind
    for name, part in zip(range(len(value)) if fields is None else fields, value):
        named |= _arrays(f"{prefix}.{name}", part)
    return named


def _replace(name: str, arrays: Arrays) -> None:
    """Writes an archive beside the file that it then replaces, whose permissions and owner it gets."""
    target = os.path.realpath(name)
    try:
        older = os.stat(target)
    except FileNotFoundError:
        older = None
    if older is not None and not stat.S_ISREG(older.st_mode):
        raise ValueError(f"path {name} cannot be written: it is not a regular file")
    # The superuser may write to any file; one that nobody may write to was protected on purpose.
    if older is not None and not (older.st_mode & 0o222 and os.access(target, os.W_OK)):
        raise PermissionError(errno.EACCES, "the file is read-only, and stays as it is", name)
    rights = 0o666 if older is None else 0o600
    part = os.path.join(os.path.dirname(target), f".pvmincq-{uuid.uuid4().hex}")
    try:
        # Through a file of our own: given a name, NumPy would add ".npz" to it.
        with open(part, "xb", opener=lambda path, flags: os.open(path, flags, rights)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        if older is not None:
            if hasattr(os, "chown"):
                # Only the superuser can give files away.
                with contextlib.suppress(PermissionError):
                    os.chown(part, older.st_uid, older.st_gid)
            os.chmod(part, stat.S_IMODE(older.st_mode))
        os.replace(part, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def _read_bytes(name: str) -> bytes:
    if os.path.exists(name) and not os.path.isfile(name):
        raise ValueError("it is not a regular file")
    with open(name, "rb") as file:
        return file.read()


def _read_archive(content: bytes) -> Arrays:
    """All arrays of an archive, by name; each member is whole, as its checksum says."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            for member in members:
                if not member.filename.endswith(".npy"):
                    raise ValueError(f"{member.filename!r:.60} is no array")
                if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
                    raise ValueError(f"{member.filename!r:.60} is compressed, as save_model never leaves it")
            # So there are no two members of one name, and none that share their bytes.
            if len(set(archive.namelist())) < len(members) or sum(one.file_size for one in members) > len(content):
                raise ValueError("its directory is damaged")
            return {one.filename.removesuffix(".npy"): _read_array(one.filename, archive.read(one)) for one in members}
    except _DAMAGE as error:
        raise ValueError(str(error)) from None


def _read_array(name: str, content: bytes) -> np.ndarray:
    """An array of plain numbers or text from the bytes of an ``.npy`` file, whose header is checked first."""
    file = io.BytesIO(content)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("it is of another version")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=_LONGEST_HEADER)
    except (ValueError, tokenize.TokenError):
        raise ValueError(f"the header of {name!r:.60} cannot be read") from None
    if dtype.hasobject:
        raise ValueError(f"{name!r:.60} holds Python objects, which are not read (allow_pickle lets a file run code)")
    start, count = file.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or not dtype.itemsize or count * dtype.itemsize != len(content) - start:
        raise ValueError(f"{name!r:.60} has {len(content) - start} bytes, which is not what {dtype}{list(shape)} has")
    flat = np.frombuffer(content, dtype, count, start)
    # A copy, in the byte order of this machine.
    return flat.reshape(shape, order="F" if by_columns else "C").astype(dtype.newbyteorder("="))


def _take(arrays: Arrays, name: str, kinds: str, *shapes: tuple[int | None, ...]) -> np.ndarray:
    """Removes an array from the others and checks its dtype, its shape (None is any length) and that it is finite."""
    if name not in arrays:
        raise ValueError(f"it lacks {name}")
    array = arrays.pop(name)
    if array.dtype.kind not in kinds:
        raise ValueError(f"{name} has the dtype {array.dtype}")
    if not any(_is_of_shape(array, shape) for shape in shapes):
        raise ValueError(f"{name} has the shape {array.shape}")
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds NaN or infinity")
    return array


def _is_of_shape(array: np.ndarray, shape: tuple[int | None, ...]) -> bool:
    return array.ndim == len(shape) and all(wanted in (None, size) for wanted, size in zip(shape, array.shape))


def _take_positive(arrays: Arrays, name: str, *shapes: tuple[int | None, ...]) -> np.ndarray:
    array = _take(arrays, name, _NUMBERS, *shapes)
    if not np.all(array > 0):
        raise ValueError(f"{name} is not above 0")
    return array


def _take_rows(arrays: Arrays, name: str, count: int | None = None) -> np.ndarray:
    """Numbers of rows or columns ``[count]``."""
    array = _take(arrays, name, _INTEGERS, (count,))
    if np.any(array < 0):
        raise ValueError(f"{name} is negative")
    return array


def _own_families(arrays: Arrays) -> list[str]:
    """The names of the families of voters that a file names and does not hold."""
    names = {"voters.kind", *(name for name in arrays if name.startswith("voters.") and name.endswith(".kind"))}
    kinds = [str(_take(dict(arrays), name, _TEXT, ())) for name in sorted(names)]
    return [kind for kind in kinds if kind not in _FAMILIES]


def _make_model(arrays: Arrays, voters: Any = None) -> PVMinCq:
    """A model of named arrays, all of which it needs; the voters are made of arrays, too, unless they are given."""
    # Files of version 0.2.0 have no list of what is None, and no names of classes.
    absent = {*_take(arrays, "none", _TEXT, (None,)).tolist()} if "none" in arrays else {"classes"}
    if absent - {*PVMinCq._fields} or absent & {"voters", "weights", "pairs"}:
        raise ValueError(f"none names {', '.join(map(repr, sorted(absent))):.60}, which cannot be None")
    pairs = [f"pairs.{name}" for name in ExpectedMatching._fields]
    present = [name for name in PVMinCq._fields if name not in {"voters", "pairs", *absent}]
    missing = [name for name in [*present, "voters.kind", *pairs] if name not in arrays]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if voters is None:
        voters, count = _take_family(arrays, "voters", 1)
    else:
        count = None
        for name in [name for name in arrays if name.startswith("voters.")]:
            _take(arrays, name, _NAMES, arrays[name].shape)

    fields: dict[str, Any] = {"voters": voters} | dict.fromkeys(absent) | _take_numbers(arrays, count, present)
    if "classes" in present:
        size = len(fields["weights"]) if fields["weights"].ndim == 2 else 2
        fields["classes"] = ClassNames(_take(arrays, "classes", _NAMES, (size,)).tolist())
    if "pairs.kind" in arrays:
        _take(arrays, "pairs.kind", _TEXT, ())
    source = _take_rows(arrays, "pairs.source")
    target = _take_rows(arrays, "pairs.target", source.size)
    shares = _take(arrays, "pairs.weights", _NUMBERS, (source.size,))
    if arrays:
        raise ValueError(f"no model has {next(iter(arrays))!r:.60}")
    return PVMinCq(pairs=ExpectedMatching(source, target, shares), **fields)


def _take_numbers(arrays: Arrays, count: int | None, names: list[str]) -> Arrays:
    """Weights of so many voters, figures and labels; of more than two classes there is a row of each for each class."""
    weights = _take(arrays, "weights", "f", (count,), (None, count))
    each = weights.shape[:-1]
    if not weights.size or each in ((1,), (2,)):
        raise ValueError(f"weights has the shape {weights.shape}")
    shapes: dict[str, list[tuple[int | None, ...]]] = {
        "radius": [(), (None,)],
        "pv": [()],
        "labels": [(*each, None)],
        "label_weights": [(None,)],
    }
    numbers = {
        name: _take(arrays, name, _NUMBERS, *shapes.get(name, [(), each]))
        for name in names
        if name not in ("weights", "classes")
    }
    if {"labels", "label_weights"} <= {*numbers} and numbers["labels"].shape[-1:] != numbers["label_weights"].shape:
        raise ValueError("labels and label_weights have different lengths")
    return {"weights": weights} | numbers


def _take_family(arrays: Arrays, prefix: str, level: int) -> tuple[Any, int | None]:
    """The family under a name, and how many voters it has, None if it does not know."""
    kind = str(_take(arrays, f"{prefix}.kind", _TEXT, ()))
    if level > _DEEPEST:
        raise ValueError(f"it has more than {_DEEPEST} levels of families")
    if kind == "GaussianVoters":
        centers = _take(arrays, f"{prefix}.centers", _NUMBERS, (None, None))
        return GaussianVoters(centers, _take_positive(arrays, f"{prefix}.gamma", (), (len(centers),))), len(centers)
    if kind == "StumpVoters":
        features = _take_rows(arrays, f"{prefix}.features")
        stumps = StumpVoters(features, _take(arrays, f"{prefix}.thresholds", _NUMBERS, (features.size,)))
        # Files of version 0.2.0 lack it.
        if f"{prefix}.per_feature" in arrays:
            stumps = stumps._replace(per_feature=_take(arrays, f"{prefix}.per_feature", _INTEGERS, ()))  # type: ignore[arg-type]
        return stumps, features.size
    if kind == "OutputVoters":
        return OutputVoters(_take_positive(arrays, f"{prefix}.bound", ())), None
    # A name that no file holds ends the loop, however long the family claims to be.
    length = int(_take(arrays, f"{prefix}.families.length", _INTEGERS, ()))
    parts = [_take_family(arrays, f"{prefix}.families.{number}", level + 1) for number in range(length)]
    if not parts:
        raise ValueError(f"{prefix} has no families")
    counts = [count for _, count in parts if count is not None]
    family: Any = _FAMILIES[kind]
    return family(tuple(one for one, _ in parts)), sum(counts) if len(counts) == len(parts) else None
