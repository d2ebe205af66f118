"""From a target and a corpus to a drafter on disk."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from specviz import __version__
from specviz.drafters.bigram import fit_bigram
from specviz.drafters.block_layers import BlockConfig
from specviz.drafters.trained import CARD, WEIGHTS
from specviz.drafters.weights import (
    Weights,
    check_target,
    load_weights,
    sample_of,
    save_weights,
)
from specviz.refuse import whole
from specviz.trace.store import made, placed
from specviz.training.batches import Batch, batch_of
from specviz.training.block_student import BlockStudent
from specviz.training.corpus import Corpus, check_corpus
from specviz.training.held_out import hold_out
from specviz.training.loop import Schedule, train
from specviz.training.mtp_student import MtpStudent
from specviz.training.objectives import OBJECTIVES
from specviz.training.students import EagleStudent, LMStudent, Student

FAMILIES = ("lm", "eagle", "block", "mtp", "bigram")


def train_drafter(
    family: str,
    target: Any,
    corpus: Corpus,
    out: str | Path,
    *,
    schedule: Schedule = Schedule(),  # noqa: B008 - frozen, and the default is worth showing
    vocabulary: int = 8192,
    layers: Sequence[int] | None = None,
    mix: Mapping[str, float] | None = None,
    max_tokens: int | None = None,
    start: str | Path | None = None,
    objective: str = "cross-entropy",
    progress: bool = True,
) -> Path:
    """Train a drafter for a torch target; go on where an earlier call was stopped.

    Parameters
    ----------
    family
        "lm", a few of the target's layers distilled; "eagle", one layer on the target's hidden
        states; "block", a DFlash2 block on the same states; "mtp", small modules on the last
        of them; "bigram", counts of the corpus, as a control.
    corpus
        The target's answers (`build_corpus`, with taps); a few are held out for measuring.
    out
        Folder for the weights, the card, the log and the checkpoint.
    vocabulary
        How many tokens the drafter can say: the most frequent of the corpus. Its head costs
        that much less, in training and in drafting.
    layers
        Of "lm" and "block": which of the target's layers to begin with; by default the first
        three, the last and two spread between them for "lm", the last two for "block".
    mix
        Weight of each content type; the corpus as it is by default.
    max_tokens
        Answer tokens to learn from, at most.
    start
        Folder of a trained drafter of the same family to go on from, on other texts; its layers
        and its vocabulary stay. By default the beginning is the target's own layers.
    objective
        "cross-entropy" with the target's distribution; of "eagle" also "expected-length" (of
        drafts drawn from it) or "recall" (the target's token among its first four), which only
        go on from a trained one.

    Returns
    -------
    Path
        The folder; `load_drafter` takes it.

    Raises
    ------
    ValueError
        For an unknown family or content type, a corpus that does not fit, or an `out` that
        holds another training.

    Examples
    --------
    >>> train_drafter("eagle", target, load_corpus("corpus"), "runs/eagle")  # doctest: +SKIP
    """
    check_asked(family, objective, start)
    model = getattr(target, "model", None)
    if model is None or not hasattr(model, "get_decoder"):
        raise ValueError(f"Training starts from a torch target's weights; {target!r:.60} has none.")
    if family != "bigram":
        if not corpus.taps:
            raise ValueError("Training needs the target's states: build the corpus with taps.")
        check_corpus(corpus, target)
    whole("vocabulary", vocabulary, 2)
    folder = Path(out)
    learn, held_out = hold_out(corpus)
    learn = mixed(learn, mix, max_tokens, schedule.seed)
    card = {
        "family": family,
        "specviz": __version__,
        "target": target.name,
        "target_caption": target.caption,
        "corpus": _described(learn),
        "held_out_prompts": len(held_out),
        "seed": schedule.seed,
    }
    if family == "bigram":
        tensors = fit_bigram(learn.texts(), target.vocab_size).to_tensors()
        return _finish(folder, Weights("bigram", {}, tensors, sample_of(model)), card)
    begun = None if start is None else _begun(family, Path(start), target)
    with torch.random.fork_rng():
        torch.manual_seed(schedule.seed)  # some weights begin at random
        student, settings = _student(
            family, model, learn, target, vocabulary, layers, begun, objective
        )
    log = train(student, learn, held_out, folder, schedule, progress=progress)
    tensors = {**student.weights(), "vocabulary": student.vocabulary.to(torch.int32)}
    card |= {
        **settings,
        "vocabulary": len(student.vocabulary),
        "objective": objective,
        "start": None if start is None else Path(start).name,
        "steps": schedule.steps,
        "rate": schedule.rate,
        "batch_tokens": schedule.batch_tokens,
        "hours": log[-1]["hours"],
        "tokens": log[-1]["tokens"],
        "log": log,
    }
    return _finish(folder, Weights(family, settings, tensors, sample_of(model)), card)


def check_asked(family: str, objective: str, start: str | Path | None) -> None:
    """Raise ValueError for what no training can be, before anything is loaded for it."""
    if family not in FAMILIES:
        raise ValueError(f"Families that can be trained are {', '.join(FAMILIES)}, not {family!r}.")
    if objective not in OBJECTIVES:
        raise ValueError(f"An objective is one of {', '.join(OBJECTIVES)}, not {objective!r}.")
    if objective != "cross-entropy" and (family != "eagle" or start is None):
        raise ValueError(f"Only an eagle that goes on from a trained one (start=) has {objective}.")


def mixed(
    corpus: Corpus, mix: Mapping[str, float] | None, max_tokens: int | None, seed: int
) -> Corpus:
    """Rows of a corpus in the proportions of a mix (of answer tokens), no row twice.

    Raises
    ------
    ValueError
        When a content type of the mix is not in the corpus.
    """
    kinds = np.array(corpus.table["content_type"].to_pylist())
    sizes = np.array([len(answer) for _, answer in corpus.texts()])
    shares = dict(mix) if mix is not None else {}
    present = sorted(set(kinds.tolist()))
    missing = sorted(set(shares) - set(present))
    if missing:
        raise ValueError(f"The corpus has no {', '.join(missing)}: it has {', '.join(present)}.")
    if mix is not None and (min(shares.values()) < 0 or sum(shares.values()) <= 0):
        raise ValueError("Weights of the mix must be 0 or more, and one of them above 0.")
    total = sum(shares.values())
    budget = float(max_tokens if max_tokens is not None else sizes.sum())
    for kind, share in shares.items():  # as much as the scarcest type allows
        if share > 0:
            budget = min(budget, sizes[kinds == kind].sum() * total / share)
    order = np.random.default_rng([seed, 1]).permutation(len(corpus))
    kept: list[int] = []
    for group in shares or [None]:
        mine = order if group is None else order[kinds[order] == group]
        limit = budget if group is None else budget * shares[group] / total
        kept += mine[np.cumsum(sizes[mine]) <= limit].tolist()
    if not kept:
        raise ValueError(f"No answer is short enough for {budget:.0f} tokens: allow more of them.")
    return corpus.select(sorted(kept))


def _student(
    family: str,
    model: Any,
    corpus: Corpus,
    target: Any,
    vocabulary: int,
    layers: Sequence[int] | None,
    begun: Weights | None,
    objective: str,
) -> tuple[Student, dict[str, Any]]:
    if begun is not None:
        return _going_on(family, model, begun, corpus, target, objective)
    counts = Counter(token for _, answer in corpus.texts() for token in answer)
    often = [token for token, _ in counts.most_common(vocabulary)]
    said = torch.tensor(sorted({*often, *target.eos_ids}))
    if family == "lm":
        depth = len(model.get_decoder().layers)
        chosen = tuple(layers) if layers is not None else _spread(depth)
        return LMStudent(model, chosen, said), {"layers": chosen}
    taps, few = corpus.taps[:-1], _few(corpus, target)
    if family == "block":
        block = BlockStudent(model, taps, said, layers)
        block.scale_to(few)
        return block, block.settings
    if family == "mtp":
        mtp = MtpStudent(model, said)
        mtp.scale_to(few)
        return mtp, mtp.settings
    student = EagleStudent(model, taps, said)
    student.scale_to(few)
    return student, {"taps": taps}


def _begun(family: str, folder: Path, target: Any) -> Weights:
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"There is no trained drafter in {folder} to go on from.")
    begun = load_weights(folder / WEIGHTS)
    if begun.family != family:
        raise ValueError(f"{folder} holds a drafter of the family {begun.family}, not {family}.")
    check_target(begun, target, str(folder))
    return begun


def _going_on(
    family: str, model: Any, begun: Weights, corpus: Corpus, target: Any, objective: str
) -> tuple[Student, dict[str, Any]]:
    trained = dict(begun.tensors)
    said = trained.pop("vocabulary").long()
    student: Student
    if family == "lm":
        student = LMStudent(model, begun.settings["layers"], said)
    elif family == "block":
        block = BlockStudent(model, (), said, config=BlockConfig.of(begun.settings))
        block.net.load_state_dict(trained)
        block.scale_to(_few(corpus, target))
        return block, block.settings
    elif family == "mtp":
        student = MtpStudent(model, said, begun.settings["modules"])
    else:
        student = EagleStudent(model, begun.settings["taps"], said, objective=objective)
    student.net.load_state_dict(trained)
    return student, dict(begun.settings)


def _few(corpus: Corpus, target: Any) -> Batch:
    """Answers to take the size of the target's states from."""
    return batch_of(corpus, range(min(8, len(corpus))), target.lm.device)


def _spread(depth: int) -> tuple[int, ...]:
    spread = {0, 1, 2, depth // 3, 2 * depth // 3, depth - 1}
    return tuple(sorted(layer for layer in spread if layer < depth))


def _described(corpus: Corpus) -> dict[str, Any]:
    table = corpus.table.to_pandas()
    table["tokens"] = table["output_ids"].map(len)
    return {
        "answers": len(corpus),
        "tokens": int(table["tokens"].sum()),
        "tokens_by_type": {
            k: int(v) for k, v in table.groupby("content_type")["tokens"].sum().items()
        },
        "tokens_by_temperature": {
            f"{k:.2g}": int(v) for k, v in table.groupby("temperature")["tokens"].sum().items()
        },
    }


def _finish(folder: Path, weights: Weights, card: dict[str, Any]) -> Path:
    file = made(folder) / WEIGHTS
    save_weights(weights, file)
    card["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    card["bytes"] = file.stat().st_size
    with placed(folder / CARD) as temporary:
        temporary.write_text(json.dumps(card, indent=1) + "\n", "utf-8")
    return folder
