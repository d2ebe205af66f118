"""Prompts for self-distillation: from templates that come with specviz, or from your files.

The target answers these prompts and the drafters learn from its answers. None of them is a
prompt of the evaluation set, which is kept for measuring.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from numbers import Integral, Real
from pathlib import Path

import numpy as np

from specviz.prompt_set import Message, Prompt, prompts
from specviz.training.templates import distinct_chats, least_capacity

__all__ = ["CONTENT_TYPES", "text_prompts", "training_prompts"]

#: The content types, the same as in the evaluation set.
CONTENT_TYPES = (
    "code",
    "prose",
    "structured",
    "explanation",
    "maths",
    "dialogue",
    "copy_edit",
    "mixed",
)


def training_prompts(n: int, seed: int = 0, mix: Mapping[str, float] | None = None) -> list[Prompt]:
    """Make chat prompts from the templates and word lists that come with specviz.

    Parameters
    ----------
    n : int
        How many prompts to make.
    seed : int
        Seed of the random choices. The same `n`, `seed` and `mix` always make the same
        prompts.
    mix : mapping of str to float, optional
        The weight of each content type; a type that is not named gets none. Without it all
        the types have equal weights.

    Returns
    -------
    list of Prompt
        `n` prompts, all different, named like ``"train-code-000017"``. The content types
        alternate so that any run of neighbours holds about the same mix.

    Raises
    ------
    ValueError
        If `n` is not a positive whole number or is more than the templates can make, if
        `seed` is not a whole number from 0, if `mix` names an unknown content type, or if its
        weights are negative or add up to nothing.

    Examples
    --------
    >>> from specviz.training.prompts import training_prompts
    >>> [prompt.id for prompt in training_prompts(3, seed=1, mix={"code": 2, "maths": 1})]
    ['train-code-000001', 'train-maths-000001', 'train-code-000002']
    """
    _check_whole("n", n, 1)
    _check_whole("seed", seed, 0)
    shares = _shares(n, mix)
    placed: list[tuple[float, int, Prompt]] = []
    for rank, content_type in enumerate(CONTENT_TYPES):
        share = shares[content_type]
        if share > (most := least_capacity(content_type)):
            raise ValueError(
                f"the templates promise {most} different prompts of the content type "
                f"{content_type!r}, not {share}; ask for fewer, or give it less weight in mix"
            )
        # A stream for each type: its first prompts stay the same whatever the mix.
        rng = np.random.default_rng([seed, rank])
        for place, messages in enumerate(distinct_chats(content_type, share, rng)):
            name = f"train-{content_type.replace('_', '-')}-{place + 1:06d}"
            prompt = Prompt(name, content_type, messages)
            placed.append(((place + 0.5) / share, rank, prompt))
    placed.sort(key=lambda entry: entry[:2])
    return [prompt for _, _, prompt in placed]


def _shares(n: int, mix: Mapping[str, float] | None) -> dict[str, int]:
    """Divide `n` among the content types by the method of largest remainders."""
    weights = dict.fromkeys(CONTENT_TYPES, 1.0) if mix is None else _weights(mix)
    total = math.fsum(weights.values())
    exact = {name: n * (weights.get(name, 0.0) / total) for name in CONTENT_TYPES}
    shares = {name: math.floor(part) for name, part in exact.items()}
    by_remainder = sorted(CONTENT_TYPES, key=lambda name: shares[name] - exact[name])
    for name in by_remainder[: n - sum(shares.values())]:
        shares[name] += 1
    return shares


def _weights(mix: Mapping[str, float]) -> dict[str, float]:
    for name, weight in mix.items():
        if name not in CONTENT_TYPES:
            raise ValueError(
                f"mix names the unknown content type {name!r}; "
                f"the types are {', '.join(CONTENT_TYPES)}"
            )
        if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= weight < math.inf:
            raise ValueError(
                f"the weight of {name!r} in mix must be a number from 0, not {weight!r}"
            )
    weights = {name: float(weight) for name, weight in mix.items()}
    if not 0 < sum(weights.values()) < math.inf:
        raise ValueError("the weights in mix add up to nothing; give a positive weight to one type")
    return weights


# --- prompts from text files

_CODE = {
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".java": "java",
    ".c": "c",
    ".h": "c",
    ".cpp": "cpp",
    ".rs": "rust",
    ".go": "go",
    ".rb": "ruby",
    ".sh": "bash",
    ".sql": "sql",
    ".html": "html",
    ".css": "css",
}
_PROSE = (".txt", ".md", ".rst")
_CONTINUE = {
    "code": (
        "Continue this code in the same style.",
        "Write the lines that come next in this file.",
        "The following code breaks off. Carry on where it stops.",
        "Go on with this program.",
    ),
    "prose": (
        "Continue this text in the same style.",
        "Write the paragraphs that come next.",
        "The following passage breaks off. Carry on where it stops.",
        "Go on with this text in the voice of its author.",
    ),
}
_PASSAGE_WORDS = 60
_SHORTEST, _LONGEST = 20, 90
_SHARED_RUN = 8


def text_prompts(path: str | os.PathLike[str], n: int, seed: int = 0) -> list[Prompt]:
    """Make prompts that ask for the continuation of passages from your own files.

    Parameters
    ----------
    path : str or path-like
        A text file in UTF-8, or a folder. In a folder and the folders inside it, text
        (``.txt``, ``.md``, ``.rst``) and source files with a known suffix are read, and hidden
        ones are passed over.
    n : int
        How many prompts to make.
    seed : int
        Seed of the choice of passages.

    Returns
    -------
    list of Prompt
        `n` prompts, named like ``"text-000017"``. Each has a passage of its own, of about 60
        words, that overlaps with no other; the content type is ``"code"`` for source files
        and else ``"prose"``.

    Raises
    ------
    FileNotFoundError
        If there is nothing at `path`.
    ValueError
        If a file is not UTF-8, if there is no passage of at least 20 words, if there are fewer
        than `n` passages, or if `n` or `seed` is not a whole number in its range.

    Notes
    -----
    A passage that has eight words in a row in common with a prompt of the evaluation set is
    left out.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from specviz.training.prompts import text_prompts
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "sea.txt")
    ...     _ = file.write_text("The tide went out and the boats lay on the sand. " * 20)
    ...     [prompt.content_type for prompt in text_prompts(file, n=2)]
    ['prose', 'prose']
    """
    _check_whole("n", n, 1)
    _check_whole("seed", seed, 0)
    place = Path(path).expanduser()
    held_out = _evaluation_runs()
    # A dictionary keeps one of equal passages, in the order of the files.
    found = {
        passage: file.suffix.lower()
        for file in _text_files(place)
        for passage in _passages(_decoded(file), by_line=file.suffix.lower() in _CODE)
        if held_out.isdisjoint(_word_runs(passage))
    }
    if not found:
        raise ValueError(
            f"{place} holds no passage of at least {_SHORTEST} words; give a longer text"
        )
    if n > len(found):
        raise ValueError(
            f"{place} holds {len(found)} different passages, not {n}; "
            f"ask for at most {len(found)}, or add more text"
        )
    rng = np.random.default_rng(seed)
    passages = list(found.items())
    chosen = [passages[int(i)] for i in rng.permutation(len(passages))[:n]]
    return [_continuation(i, *pair, rng) for i, pair in enumerate(chosen, start=1)]


def _continuation(number: int, passage: str, suffix: str, rng: np.random.Generator) -> Prompt:
    content_type = "code" if suffix in _CODE else "prose"
    requests = _CONTINUE[content_type]
    request = requests[int(rng.integers(len(requests)))]
    if content_type == "code":
        fence = "~~~" if "```" in passage else "```"
        passage = f"{fence}{_CODE[suffix]}\n{passage}\n{fence}"
    message: Message = {"role": "user", "content": f"{request}\n\n{passage}"}
    return Prompt(f"text-{number:06d}", content_type, (message,))


def _text_files(place: Path) -> list[Path]:
    if not place.exists():
        raise FileNotFoundError(f"there is no file or folder {place}; check the path")
    if not place.is_dir():
        return [place]
    files = [
        file
        for file in sorted(place.rglob("*"))
        if file.suffix.lower() in (*_CODE, *_PROSE)
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
    ]
    if not files:
        raise ValueError(
            f"the folder {place} holds no text or source files; "
            f"their names end in one of {', '.join((*_PROSE, *_CODE))}"
        )
    return files


def _decoded(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{file}: the byte 0x{byte:02x} at place {error.start} is not UTF-8; "
            "save the file again with the encoding UTF-8"
        ) from None


def _passages(text: str, by_line: bool) -> Iterator[str]:
    """Cut a text into passages that end with a line or with a sentence."""
    passage = ""
    for part in re.split(r"(?<=\n)" if by_line else r"(?<=[.!?])(?=\s)|(?<=\n)", text):
        passage += part
        if len(passage.split()) >= _PASSAGE_WORDS:
            yield _trimmed(passage)
            passage = ""
    if len(passage.split()) >= _SHORTEST:
        yield _trimmed(passage)


def _trimmed(passage: str) -> str:
    # The first line keeps its indentation; a text without full stops gets an end.
    start = re.match(rf"(?:\s*\S+){{1,{_LONGEST}}}", passage.lstrip("\r\n"))
    return start.group() if start else ""


@cache
def _evaluation_runs() -> frozenset[str]:
    texts = (message["content"] for prompt in prompts() for message in prompt.messages)
    return frozenset(run for text in texts for run in _word_runs(text))


def _word_runs(text: str) -> set[str]:
    """Return all runs of eight words, in lower case and without punctuation."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + _SHARED_RUN]) for i in range(len(words) - _SHARED_RUN + 1)}


# --- checks


def _check_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number from {least}, not {value!r}")
