"""What kind of text the target is writing, from what is cheap to see while it writes.

A small logistic model reads two windows of the last committed tokens (as kinds of token: words,
digits, brackets, indentation, ...), the target's entropy there, and whether a code fence is
open. The policy that switches on it sees token ids only, so a table from ids to kinds, computed
once from the tokenizer's texts, is part of the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specviz._data_files import data_file
from specviz.refuse import whole

#: Kinds of token, in the order of the letters a, b, c, ... that stand for them in a table.
KINDS = (
    "word",  # letters that begin a word
    "piece",  # letters that continue one, or follow a bracket or a dot
    "function word",  # the, of, was, 's: running English
    "keyword",  # def, return, None, SELECT: words of programs that prose has little use for
    "digit",
    "stop",  # the punctuation of sentences
    "bracket",  # the punctuation of programs and data
    "sign",  # + - = * / and the like
    "newline",
    "indent",  # white space within a line
    "fence",  # ```
    "other",
)
#: How far back an open code fence is looked for, in tokens. A longer block counts as closed.
FENCE_REACH = 256

_WORD, _FENCE = KINDS.index("word"), KINDS.index("fence")
_PIECE, _KEYWORD = KINDS.index("piece"), KINDS.index("keyword")
_ENGLISH = """the of and to a that was it he she they you his her their its my your our we i with
this which but have had has been are were be at by an more can will would 's 't 'm 're 've 'll 'd
\u2019s \u2019t \u2019m \u2019re \u2019ve \u2019ll \u2019d"""
_PROGRAMS = """def return self elif None True False null print import const var func function int
str len void struct public private static async await lambda printf console SELECT FROM WHERE GROUP
JOIN INSERT VALUES CREATE TABLE div href px sudo pip npm git args kwargs init df np pd"""
_FUNCTION_WORDS, _KEYWORDS = frozenset(_ENGLISH.split()), frozenset(_PROGRAMS.split())
_STOPS = frozenset(".,!?'\"\u2018\u2019\u201c\u201d\u2013\u2014\u2026-:")
_BRACKETS = frozenset("()[]{}<>;_|&#@~`\\")
_SIGNS = frozenset("+-*/=^%$\u00d7\u00f7\u2212\u2248\u20ac\u00a3\u00b0")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def token_classes(texts: Iterable[str]) -> str:
    """The kind of every token of a vocabulary, one letter each.

    Parameters
    ----------
    texts
        Text of token 0, 1, 2, ..., its leading space included.

    Returns
    -------
    str
        Letter `"a"` stands for `KINDS[0]`, and so on.

    Examples
    --------
    >>> [KINDS["abc".index(letter)] for letter in token_classes([" house", "ify", " the"])]
    ['word', 'piece', 'function word']
    """
    return "".join(ascii_lowercase[KINDS.index(_kind(text))] for text in texts)


def _kind(text: str) -> str:
    core = text.strip(" ")
    if "```" in core:
        return "fence"
    if "\n" in core:
        return "newline"
    if not core.strip():
        return "indent"
    if core.startswith("\\x") and len(core) > 2:  # bytes that are no text on their own
        return "other"
    if core.lower() in _FUNCTION_WORDS:
        return "function word"
    if core in _KEYWORDS:
        return "keyword"
    if core.isdigit():
        return "digit"
    if core.isalpha():
        return "word" if text[0] == " " or core[0].isupper() else "piece"
    if core[0] == '"' and core[1:2] in (":", ","):  # as between the fields of JSON
        return "bracket"
    if all(letter in _STOPS for letter in core):
        return "stop"
    if any(letter in _BRACKETS for letter in core):
        return "bracket"
    return "sign" if any(letter in _SIGNS for letter in core) else "other"


@dataclass(frozen=True)
class Detector:
    """A logistic model of the kind of text at each output token.

    Features at token t, in this order: 1; mean and spread (standard deviation) of the target's
    entropy over the last `long` tokens, nats; 1 where a code fence is open, else 0; the share of
    every kind of token among the last `long` tokens; the same among the last `short`. Fewer
    tokens count at the start of the output; the prompt does not.

    Parameters
    ----------
    classes
        Names of the kinds of text, two or more.
    weights
        Per class, one weight per feature; the class with the largest sum leads.
    table
        Kind of every token of the vocabulary, from `token_classes`.
    long, short
        Lengths of the windows, in tokens.
    target, fingerprint
        Whose tokens and entropies it was fitted on.

    Raises
    ------
    ValueError
        When the weights do not fit the classes and features, or the table has other letters.

    Examples
    --------
    A detector that goes by the share of digits alone:

    >>> at = Detector.feature_names().index("digit, long")
    >>> zero, digits = [0.0] * len(Detector.feature_names()), [0.0] * len(Detector.feature_names())
    >>> zero[0], digits[at] = 0.5, 1.0
    >>> texts = [" cat", "7"]
    >>> detector = Detector(("words", "numbers"), (zero, digits), token_classes(texts), 4, 2)
    >>> detector.labels([0, 0, 1, 1, 1], [0.1] * 5, last=5).tolist()
    [0, 0, 0, 0, 1]
    """

    classes: Sequence[str]
    weights: Sequence[Sequence[float]]
    table: str
    long: int = 24
    short: int = 4
    target: str = ""
    fingerprint: str = ""
    _weights: Floats = field(init=False, repr=False, compare=False)
    _kinds: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("long", "short"):
            object.__setattr__(self, name, whole(name, getattr(self, name), least=1))
        if self.short > self.long:
            raise ValueError(f"short = {self.short} must not be above long = {self.long}.")
        classes = tuple(self.classes) if isinstance(self.classes, Sequence) else ()
        if len(classes) < 2 or isinstance(self.classes, str) or len(set(classes)) < len(classes):
            raise ValueError(f"classes must be two or more different names, not {self.classes!r}.")
        letters = ascii_lowercase[: len(KINDS)]
        if not isinstance(self.table, str) or not self.table or set(self.table) - set(letters):
            raise ValueError("table must be letters from token_classes, one for every token.")
        try:
            weights = np.array(self.weights, dtype=float)
        except (TypeError, ValueError):
            weights = np.array(np.nan)
        shape = (len(classes), len(self.feature_names()))
        if weights.shape != shape or not np.all(np.isfinite(weights)):
            raise ValueError(
                f"weights must be {shape[0]} lists (one per class) of {shape[1]} finite numbers "
                f"(one per feature)."
            )
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "weights", tuple(map(tuple, weights.tolist())))
        object.__setattr__(self, "_weights", weights)
        kinds = np.frombuffer(self.table.encode("ascii"), np.uint8).astype(np.int64) - ord("a")
        object.__setattr__(self, "_kinds", kinds)

    @staticmethod
    def feature_names() -> list[str]:
        """Names of the features, in the order of the weights."""
        shares = [f"{kind}, {window}" for window in ("long", "short") for kind in KINDS]
        return ["1", "entropy mean", "entropy spread", "fence open", *shares]

    def features(self, tokens: Sequence[int], entropy: Sequence[float], last: int) -> Floats:
        """Features at the `last` tokens (fewer, if there are fewer), shape [last, features].

        Parameters
        ----------
        tokens, entropy
            Output tokens committed so far, and the target's entropies there (nats), as in a
            `History`.

        Raises
        ------
        ValueError
            When there are not as many entropies as tokens, or a token is outside the table.
        """
        n = len(tokens)
        if len(entropy) != n or not n:
            raise ValueError(
                f"The detector reads one entropy per token, and got {len(entropy)} for {n} "
                "tokens: generate with instrument=True."
            )
        last = min(last, n)
        ids = np.array(tokens[max(0, n - last - FENCE_REACH) :], dtype=np.int64)
        if ids.min() < 0 or ids.max() >= len(self._kinds):
            raise ValueError(
                f"This detector knows the {len(self._kinds)} tokens of "
                f"{self.target or 'its target'}, and token {ids[ids.argmax()]} is none of them: "
                "it was fitted for another target."
            )
        kinds = self._kinds[ids]
        lead = self.long - 1
        recent = kinds[-(last + lead) :]
        before = last + lead - len(recent)  # places before the output begins stay empty
        counts = np.zeros((last + lead + 1, len(KINDS)))
        counts[np.arange(before + 1, last + lead + 1), recent] = 1
        counts = counts.cumsum(axis=0)
        h = np.zeros(last + lead)
        h[before:] = entropy[-len(recent) :]
        place = np.arange(n - last, n) + 1
        long, short = np.minimum(place, self.long), np.minimum(place, self.short)
        windows = np.lib.stride_tricks.sliding_window_view(h, self.long)
        mean = windows.sum(axis=1) / long
        spread = np.sqrt(np.maximum((windows * windows).sum(axis=1) / long - mean * mean, 0))
        rows = np.empty((last, 4 + 2 * len(KINDS)))
        rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] = 1, mean, spread, _fenced(kinds)[-last:]
        for column, window, seen in ((4, self.long, long), (4 + len(KINDS), self.short, short)):
            shares = (counts[-last:] - counts[-last - window : -window]) / seen[:, None]
            rows[:, column : column + len(KINDS)] = shares
        return rows

    def labels(self, tokens: Sequence[int], entropy: Sequence[float], last: int) -> Ints:
        """Index of the leading class at the `last` tokens, shape [last]; on ties the first."""
        scores = self.features(tokens, entropy, last) @ self._weights.T
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """The detector as plain JSON values."""
        return {
            "target": self.target,
            "fingerprint": self.fingerprint,
            "classes": list(self.classes),
            "features": self.feature_names(),
            "long": self.long,
            "short": self.short,
            "weights": [list(row) for row in self.weights],
            "kinds": list(KINDS),
            "table": self.table,
        }

    @classmethod
    def from_dict(cls, raw: Any) -> Detector:
        """The detector that `to_dict` wrote; further entries are not read.

        Raises
        ------
        ValueError
            When an entry is missing, or its features or kinds are not this version's.
        """
        needed = ("target", "fingerprint", "classes", "features", "long", "short", "weights")
        known = raw if isinstance(raw, dict) else {}
        missing = [name for name in (*needed, "kinds", "table") if name not in known]
        if missing:
            raise ValueError(f"This is not a detector: it lacks {missing[0]!r}.")
        if raw["features"] != cls.feature_names() or raw["kinds"] != list(KINDS):
            raise ValueError(
                "This detector reads other features than this version of specviz computes: fit "
                "it again with data/detector/build.py."
            )
        return cls(
            raw["classes"],
            raw["weights"],
            raw["table"],
            raw["long"],
            raw["short"],
            raw["target"],
            raw["fingerprint"],
        )


def load_detector(fingerprint: str | None = None, path: str | Path | None = None) -> Detector:
    """The detector that comes with specviz, or one of your own.

    Parameters
    ----------
    fingerprint
        Of the target it will be used with: `target.fingerprint`, or
        `trace.meta.target["fingerprint"]`. Not checked when None.
    path
        A JSON file that `data/detector/build.py` wrote; None is the shipped one.

    Raises
    ------
    ValueError
        When it was fitted on another target, or the file is no detector.

    Examples
    --------
    >>> load_detector().classes
    ('code', 'prose', 'structured', 'other')
    """
    file = data_file("detector/content.json") if path is None else Path(path)
    try:
        raw = json.loads(file.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON: {error}.") from None
    detector = Detector.from_dict(raw)
    if fingerprint is not None and fingerprint != detector.fingerprint:
        raise ValueError(
            f"This detector was fitted on {detector.target} (fingerprint {detector.fingerprint}), "
            f"not on a target with fingerprint {fingerprint}: its tokens and entropies may be "
            "others. Fit one with data/detector/build.py."
        )
    return detector


def _fenced(kinds: Ints) -> NDArray[np.bool_]:
    """Whether a code block is open after each token; a fence named (```python) always opens."""
    opened, at = np.zeros(len(kinds), dtype=bool), False
    for place in np.flatnonzero(kinds == _FENCE).tolist():
        opened[place:] = at = not at
        if place + 1 < len(kinds) and kinds[place + 1] in (_WORD, _PIECE, _KEYWORD):
            opened[place + 1 :] = at = True  # only the token after the fence shows it
    return opened
