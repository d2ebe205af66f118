"""Make the detector that comes with specviz: texts, fit, captures to judge it on.

    python data/detector/build.py texts          # answers of the drafters' corpora, with entropies
    python data/detector/build.py fit            # the weights into data/detector/content.json
    python data/detector/build.py capture mixed  # any name in CAPTURES: all drafters together
    python data/detector/build.py spans          # labels of the mixed outputs, from BLOCKS below

The corpora are those of data/drafters/build.py. Every step uses one core; captures go on where
they were stopped. Work files lie in ./out/detector. `measure.py` judges what comes out.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.optimize import minimize

import specviz as sv
from specviz.policies.detector import Detector, token_classes
from specviz.prompt_set import Prompt
from specviz.training.corpus import Corpus, load_corpus
from specviz.training.prompts import training_prompts

HERE = Path(__file__).resolve().parent
WORK = Path("out/detector")
CORPORA = [Path("out/drafters") / f"corpus-{part}" for part in ("general-a", "general-b", "code")]
CORPORA.append(Path("out/drafters/corpus-prose"))
DRAFTERS = ("lm", "eagle-mixed", "eagle-code", "eagle-prose", "bigram", "ngram")
SEED = 0

CLASSES = ("code", "prose", "structured", "other")
#: Greedy answers per content type that the detector learns from. What copy_edit prompts bring
#: back can be any kind of text, so they are left out.
ANSWERS = {
    "code": 90,
    "prose": 50,
    "structured": 64,
    "maths": 50,
    "explanation": 30,
    "dialogue": 30,
    "mixed": 64,
}
HELD_OUT = 0.2
#: Weight of the L2 penalty, in tokens' worth of log likelihood per squared standardised weight.
PENALTY = 30.0
_END = "<|im_end|>"
#: Fences of these languages hold data.
_DATA = ("json", "csv", "yaml", "yml", "xml", "toml", "tsv", "k", "markdown", "text", "table")


# --- captures


def _fresh(n: int) -> list[Prompt]:
    """Training prompts that no drafter has learned from, four types twice as often."""
    asked = {tuple(ids) for ids, _ in load_corpus(*CORPORA).texts()}
    target = sv.load_target()
    mix = dict.fromkeys(("code", "prose", "structured", "mixed"), 2)
    mix |= dict.fromkeys(("explanation", "maths", "dialogue", "copy_edit"), 1)
    made = training_prompts(2 * n, seed=1, mix=mix)
    return [p for p in made if target.codec.encode(p.messages) not in asked][:n]


#: Prompts, and tokens of output. Plans are chosen on `train` and judged on the other two, and on
#: the captures of code and prose that data/drafters/build.py makes.
CAPTURES: dict[str, tuple[Callable[[], list[Prompt]], int]] = {
    "train": (lambda: _fresh(48), 64),
    "structured": (lambda: sv.prompts(content_type="structured", limit=6), 64),
    "mixed": (lambda: sv.prompts(content_type="mixed"), 128),
}


def capture(name: str) -> None:
    prompts, tokens = CAPTURES[name]
    target = sv.load_target()
    drafters = [sv.load_drafter(drafter, target) for drafter in DRAFTERS]
    sv.capture(prompts(), target, drafters, k=7, max_new_tokens=tokens, out=WORK / name)


#: What is in the fenced blocks of the outputs to the `mixed` evaluation prompts, by reading them.
#: All that is outside of blocks is running text, headings included. Outputs that a program is
#: said to print are "structured" where they are data, else "other".
BLOCKS: dict[str, tuple[str, ...]] = {
    **{f"mixed-{i:02d}": ("code",) for i in range(1, 19)},
    "mixed-06": ("code", "code"),
    "mixed-09": ("code", "other"),
    "mixed-16": ("code", "structured"),
    "mixed-17": ("code", "code"),
}


def spans() -> None:
    """Labelled spans of the mixed outputs, with the hash of the output they belong to."""
    trace = sv.load_trace(WORK / "mixed")
    labelled = []
    for row in trace.sequences.itertuples():
        tokens = trace.positions.query("seq == @row.seq").sort_values("t")["text"].tolist()
        fences = [i for i, text in enumerate(tokens) if "```" in text]
        ends = [*(i + 1 for i in fences[1::2]), *([len(tokens)] if len(fences) % 2 else [])]
        found, at = [], 0
        for opening, end, kind in zip(fences[::2], ends, BLOCKS[row.prompt_id], strict=True):
            found += [(at, opening, "prose"), (opening, end, kind)]
            at = end
        found.append((at, len(tokens), "prose"))
        found = [span for span in found if "".join(tokens[span[0] : span[1]]) not in ("", _END)]
        found[-1] = (found[-1][0], len(tokens), found[-1][2])  # the end of text goes with it
        labelled.append(
            {
                "prompt_id": row.prompt_id,
                "output_sha256": hashlib.sha256(row.output.encode()).hexdigest(),
                "spans": [
                    {"start": a, "end": b, "label": kind, "begins": "".join(tokens[a : a + 6])}
                    for a, b, kind in found
                ],
            }
        )
    card = {
        "target": trace.meta.target["name"],
        "fingerprint": trace.meta.target["fingerprint"],
        "max_new_tokens": trace.meta.max_new_tokens,
        "note": "Greedy outputs in fp32; tokens from start to before end. Where an output's hash "
        "differs, its labels do not hold.",
        "outputs": labelled,
    }
    (HERE / "mixed_spans.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")


# --- texts: tokens, the target's entropies, and a label for every token


def texts() -> None:
    """Label greedy answers by their fences and content types; entropies from stored states."""
    target: Any = sv.load_target()
    corpus = load_corpus(*CORPORA)
    rows = []
    for row, content_type, tokens in _chosen(corpus):
        labels = _labels(content_type, [target.codec.token_text(token) for token in tokens])
        if labels is None:
            continue
        entropy = _entropies(target, corpus, row, len(tokens))
        prompt = corpus.table["prompt_id"][row].as_py()
        rows.append(
            {
                "prompt_id": f"{row}:{prompt}",
                "content_type": content_type,
                "tokens": tokens,
                "entropy": entropy,
                "label": labels,
            }
        )
        print(f"\r{len(rows)} answers", end="", flush=True)
    pq.write_table(pa.Table.from_pylist(rows), WORK / "texts.parquet")


def _chosen(corpus: Corpus) -> list[tuple[int, str, list[int]]]:
    table = corpus.table
    greedy = np.array(table["temperature"].to_pylist()) == 0
    types = np.array(table["content_type"].to_pylist())
    rng = np.random.default_rng(SEED)
    chosen = []
    for content_type, most in ANSWERS.items():
        rows = rng.permutation(np.flatnonzero(greedy & (types == content_type)))[:most]
        chosen += [(int(r), content_type, table["output_ids"][r.item()].as_py()) for r in rows]
    return chosen


def _entropies(target: Any, corpus: Corpus, row: int, n: int) -> list[float]:
    """Of the distribution each answer token came from: the state before it, unembedded."""
    final = corpus.states(row)[-n:, -1].float()
    found: list[float] = []
    with torch.inference_mode():
        for part in final.split(32):
            logp = target.lm.unembed(part).float().log_softmax(-1)
            found += (-(logp.exp() * logp).sum(-1)).tolist()
    return found


def _labels(content_type: str, texts: list[str]) -> list[int] | None:
    """One class per token, or None where nothing marks what is code and what is not."""
    fences = [i for i, text in enumerate(texts) if "```" in text]
    outside = {"maths": "other", "structured": "prose" if fences else "structured"}
    labels = [CLASSES.index(outside.get(content_type, "prose"))] * len(texts)
    if not fences and content_type in ("code", "mixed"):
        return None
    for opening in fences[::2]:
        closing = next((i for i in fences if i > opening), len(texts) - 1)
        named = "".join(texts[opening + 1 : opening + 3]).strip()
        data = content_type == "structured" or named.startswith(_DATA)
        kind = CLASSES.index("structured" if data else "code")
        labels[opening : closing + 1] = [kind] * (closing + 1 - opening)
    return labels


# --- fit


def fit() -> None:
    target = sv.load_target()
    rows = pq.read_table(WORK / "texts.parquet").to_pylist()
    rng = np.random.default_rng(SEED)
    held = rng.random(len(rows)) < HELD_OUT
    names = Detector.feature_names()
    table = token_classes(target.codec.token_text(i) for i in range(target.vocab_size))
    blank = Detector(
        CLASSES,
        np.zeros((len(CLASSES), len(names))).tolist(),
        table,
        target=target.name,
        fingerprint=target.fingerprint,
    )
    detector = fitted(blank, [row for row, out in zip(rows, held, strict=True) if not out])
    judged = [row for row, out in zip(rows, held, strict=True) if out]
    quality = confusion(detector, judged)
    plain = fitted(blank, [r for r, out in zip(rows, held, strict=True) if not out], "fence")
    card = detector.to_dict() | {
        "licence": "Apache-2.0, as the target's",
        "training": {
            "answers": int((~held).sum()),
            "tokens": sum(len(r["tokens"]) for r, out in zip(rows, held, strict=True) if not out),
            "prompts": "training_prompts of data/drafters/build.py (general-a, general-b, code, "
            "prose), greedy answers; labels from fences and content types",
            "answers_per_type": ANSWERS,
            "penalty": PENALTY,
            "seed": SEED,
        },
        "held_out": quality,
        "held_out_without_fences": confusion(plain, judged),
    }
    (HERE / "content.json").write_text(json.dumps(card, indent=1) + "\n", "utf-8")
    print(json.dumps(quality, indent=1))


def fitted(blank: Detector, rows: list[dict[str, Any]], without: str = "?") -> Detector:
    """Multinomial logistic regression, every class of equal weight, L2 on standardised features.

    Features whose names begin with `without` are left out.
    """
    x = np.concatenate([blank.features(r["tokens"], r["entropy"], len(r["tokens"])) for r in rows])
    y = np.concatenate([r["label"] for r in rows])
    weight = (1 / np.bincount(y, minlength=len(CLASSES)))[y] * len(y) / len(CLASSES)
    x[:, [name.startswith(without) for name in blank.feature_names()]] = 0
    mean, scale = x.mean(axis=0), x.std(axis=0)
    mean[0], scale[0] = 0, 1  # the constant
    scale[scale == 0] = 1
    z, truth = (x - mean) / scale, np.eye(len(CLASSES))[y]
    shape = (len(CLASSES), x.shape[1])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        scores = z @ w.T
        logp = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
        penalised = np.where(np.arange(shape[1]) == 0, 0, PENALTY) * w
        gradient = (weight[:, None] * (np.exp(logp) - truth)).T @ z + penalised
        value = -(weight * logp[np.arange(len(y)), y]).sum() + 0.5 * (penalised * w).sum()
        return float(value), gradient.ravel()

    found = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B")
    w = found.x.reshape(shape) / scale
    w[:, 0] -= w @ mean  # the standardisation folded in
    w = w.round(5)
    return Detector(
        CLASSES,
        w.tolist(),
        blank.table,
        blank.long,
        blank.short,
        blank.target,
        blank.fingerprint,
    )


def confusion(detector: Detector, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Tokens of each class (rows) by the class that leads there (columns), without hysteresis."""
    table = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    for row in rows:
        said = detector.labels(row["tokens"], row["entropy"], len(row["tokens"]))
        np.add.at(table, (row["label"], said), 1)
    right = table.diagonal() / np.maximum(table.sum(axis=1), 1)
    return {
        "answers": len(rows),
        "tokens": int(table.sum()),
        "confusion": table.tolist(),
        "right_by_class": dict(zip(CLASSES, right.round(4).tolist(), strict=True)),
        "right_mean_of_classes": float(right.mean().round(4)),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    WORK.mkdir(parents=True, exist_ok=True)
    step, *names = sys.argv[1:]
    {"capture": capture, "texts": texts, "fit": fit, "spans": spans}[step](*names)
