"""The detector: kinds of token, features against loops, what it refuses, and what is shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specviz.policies.detector import (
    FENCE_REACH,
    KINDS,
    Detector,
    load_detector,
    token_classes,
)

NAMES = Detector.feature_names()
#: A vocabulary with one token of every kind, in their order.
TEXTS = [" house", "ify", " the", "def", "7", ".", "();", " =", "\n\n", "    ", "```", "\\xc3"]
some = settings(max_examples=60, deadline=None)


def detector(seed: int = 0, **changes: Any) -> Detector:
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {
        "classes": ("code", "prose", "data"),
        "weights": rng.normal(size=(3, len(NAMES))).tolist(),
        "table": token_classes(TEXTS),
        "long": 5,
        "short": 2,
    }
    return Detector(**(given | changes))


def outputs() -> st.SearchStrategy[tuple[list[int], list[float]]]:
    one = st.tuples(st.integers(0, len(TEXTS) - 1), st.floats(0, 6, width=32))
    return st.lists(one, min_size=1, max_size=40).map(
        lambda pairs: ([t for t, _ in pairs], [h for _, h in pairs])
    )


def by_loop(found: Detector, tokens: list[int], entropy: list[float]) -> list[list[float]]:
    """The features as their docstring says them, one token after the other."""
    kinds = [KINDS[ord(found.table[token]) - ord("a")] for token in tokens]
    rows, opened = [], False
    for t, kind in enumerate(kinds):
        if kind == "fence":
            opened = not opened
        elif t and kinds[t - 1] == "fence" and kind in ("word", "piece", "keyword"):
            opened = True
        long, short = (kinds[max(0, t + 1 - w) : t + 1] for w in (found.long, found.short))
        window = np.array(entropy[max(0, t + 1 - found.long) : t + 1])
        rows.append(
            [1.0, window.mean(), window.std(), float(opened)]
            + [long.count(name) / len(long) for name in KINDS]
            + [short.count(name) / len(short) for name in KINDS]
        )
    return rows


def test_every_kind_has_its_token() -> None:
    assert token_classes(TEXTS) == "abcdefghijkl"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("House", "word"),
        ("self", "keyword"),
        (" The", "function word"),
        ("'s", "function word"),
        (" 12", "digit"),
        (',"', "stop"),
        ('":', "bracket"),
        ("_", "bracket"),
        (" ```", "fence"),
        (" \n", "newline"),
        ("\t", "indent"),
        (" ", "indent"),
        ("", "indent"),
        ("<|im_end|>", "bracket"),
        ("é", "piece"),
    ],
)
def test_kinds_of_token(text: str, kind: str) -> None:
    assert KINDS["abcdefghijkl".index(token_classes([text]))] == kind


@some
@given(outputs(), st.integers(1, 50))
def test_features_equal_the_loop(output: tuple[list[int], list[float]], last: int) -> None:
    found, (tokens, entropy) = detector(), output
    expected = np.array(by_loop(found, tokens, entropy))[-last:]
    got = found.features(tokens, entropy, last)
    assert got.shape == expected.shape
    # The spread is the root of a small difference of squares.
    np.testing.assert_allclose(got, expected, atol=1e-6)


@some
@given(outputs(), st.integers(0, 5))
def test_labels_are_the_leading_class_and_know_no_future(
    output: tuple[list[int], list[float]], seed: int
) -> None:
    found, (tokens, entropy) = detector(seed), output
    n = len(tokens)
    together = found.labels(tokens, entropy, n).tolist()
    scores = np.array(by_loop(found, tokens, entropy)) @ np.array(found.weights).T
    clear = np.ptp(np.sort(scores, axis=1)[:, -2:], axis=1) > 1e-4
    assert (scores.argmax(axis=1) == together)[clear].all()
    for t in range(n):
        assert found.labels(tokens[: t + 1], entropy[: t + 1], 1).tolist() == [together[t]]


def test_a_fence_is_looked_for_within_its_reach_only() -> None:
    found, open_at = detector(), NAMES.index("fence open")
    for length, expected in ((FENCE_REACH, 1), (FENCE_REACH + 1, 0)):
        tokens = [10, *[0] * length]
        assert found.features(tokens, [1.0] * len(tokens), 1)[0, open_at] == expected


def test_a_named_fence_opens_whatever_came_before() -> None:
    """After a block that was opened before the reach, parity alone would be wrong."""
    tokens = [10, 0, 8, 10, 0]  # opens (named), newline, then a fence that is named, too
    opened = detector().features(tokens, [1.0] * 5, 5)[:, NAMES.index("fence open")]
    assert opened.tolist() == [1, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"classes": ("code",)}, "two or more different names"),
        ({"classes": ("a", "a", "b")}, "two or more different names"),
        ({"classes": "abc"}, "two or more different names"),
        ({"weights": [[0.0], [1.0]]}, "finite numbers"),
        ({"weights": [[float("nan")] * len(NAMES)] * 3}, "finite numbers"),
        ({"weights": "no"}, "finite numbers"),
        ({"table": "xyz"}, "letters from token_classes"),
        ({"table": ""}, "letters from token_classes"),
        ({"long": 0}, "long must be a whole number"),
        ({"short": 6}, "must not be above long"),
    ],
)
def test_bad_detectors_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        detector(**changes)


@pytest.mark.parametrize(
    ("tokens", "entropy", "sentence"),
    [
        ([0, 12], [1.0, 1.0], "token 12 is none of them: it was fitted for another target"),
        ([0, -1], [1.0, 1.0], "another target"),
        ([0, 1], [1.0], "one entropy per token"),
        ([], [], "one entropy per token"),
    ],
)
def test_bad_text_is_refused(tokens: list[int], entropy: list[float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        detector().labels(tokens, entropy, 4)


def test_a_detector_comes_back_from_its_file(tmp_path: Path) -> None:
    found = detector(target="toy", fingerprint="abc")
    file = tmp_path / "detector.json"
    file.write_text(json.dumps(found.to_dict() | {"training": "not read"}), "utf-8")
    assert load_detector("abc", file) == found
    with pytest.raises(ValueError, match="fitted on toy"):
        load_detector("other", file)
    for broken, sentence in (
        ("{", "is not JSON"),
        ("[1]", "lacks 'target'"),
        ("{}", "lacks 'target'"),
        (json.dumps(found.to_dict() | {"kinds": ["letters"]}), "reads other features"),
    ):
        file.write_text(broken, "utf-8")
        with pytest.raises(ValueError, match=sentence):
            load_detector(path=file)


def test_the_shipped_detector_tells_code_from_prose() -> None:
    found = load_detector()
    assert found.classes == ("code", "prose", "structured", "other")
    assert found.target == "smollm2-135m"
    token = {kind: found.table.index("abcdefghijkl"[i]) for i, kind in enumerate(KINDS)}
    prose = ["function word", "word", "word", "function word", "word", "stop"] * 6
    code = ["fence", "piece", "newline", *["indent", "piece", "bracket", "sign", "piece"] * 6]
    for kinds, entropy, expected in ((prose, [0.5, 3.0], "prose"), (code, [0.1, 0.5], "code")):
        tokens = [token[kind] for kind in kinds]
        said = found.labels(tokens, (entropy * len(tokens))[: len(tokens)], 8)
        assert {found.classes[i] for i in said} == {expected}
