"""Find the data files that come with the package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_file(name: str) -> Path:
    """Return the path of a data file that comes with specviz.

    An installed package holds its data in ``specviz/_data``; a source checkout
    holds the same files in ``data``, next to the package.

    Parameters
    ----------
    name : str
        The name of the file, for example ``"prompts.jsonl"``.

    Returns
    -------
    pathlib.Path
        The path of the existing file.

    Raises
    ------
    FileNotFoundError
        If the file is in neither place.

    Examples
    --------
    >>> from specviz._data_files import data_file
    >>> data_file("prompts.jsonl").name
    'prompts.jsonl'
    """
    for folder in (_PACKAGE / "_data", _PACKAGE.parent / "data"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"the data file {name!r} of specviz is missing from {_PACKAGE / '_data'} and from "
        f"{_PACKAGE.parent / 'data'}; reinstall specviz-decoding, or use a complete source checkout"
    )
