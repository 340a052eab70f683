"""Imports of packages that come with an extra."""

import contextlib
from collections.abc import Iterator

__all__: list[str] = []


@contextlib.contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Imports inside the block need an extra; if one fails, the ImportError says how to install it.

    Example:
      >>> with needs_extra("plots"):
      ...     import no_such_package
      Traceback (most recent call last):
      ImportError: no_such_package is missing or too old; in a checkout of pvmincq_jax: pip install -e '.[plots]'
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        text = f"{package} is missing or too old; in a checkout of pvmincq_jax: pip install -e '.[{name}]'"
        raise ImportError(text, name=package) from error
