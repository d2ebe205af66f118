"""The training corpus: the target's own answers, made in batches and kept on disk.

A drafter has to guess what this target says, so it learns from what this target said
(self-distillation): greedy and sampled answers to prompts that no evaluation uses, cut where
they begin to loop. The target's hidden states are kept with them, in fp16, so that no training
run asks the target again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm.auto import tqdm

from specviz.engine.protocols import FINAL
from specviz.prompt_set import Prompt
from specviz.refuse import whole
from specviz.targets.slots import SlotLM
from specviz.trace.store import made, placed, write_table
from specviz.training.answers import Answer, answer_batch

#: Greedy answers and warmer ones, in turn from prompt to prompt.
TEMPERATURES = (0.0, 0.5, 0.8)
#: A shorter answer teaches nothing worth a row.
SHORTEST = 8

#: Batches among which prompts are sorted by length.
_STRETCH = 8
#: How far states may be from those of another precision or batch, of their size.
_CLOSE = 0.05
_KEY = b"specviz_asked"
_SCHEMA = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("content_type", pa.string()),
        ("temperature", pa.float32()),
        ("prompt_ids", pa.list_(pa.int32())),
        ("output_ids", pa.list_(pa.int32())),
    ]
)


#: A prompt, the temperature of its answer, its token ids.
_Asked = tuple[Prompt, float, tuple[int, ...]]


@dataclass(frozen=True)
class Corpus:
    """Prompts and answers of one target, as token ids, and what the target's layers held.

    Attributes
    ----------
    table
        One row per answer: prompt_id, content_type, temperature, prompt_ids, output_ids.
    taps
        Layers whose states are kept; the last is `FINAL`. Empty when none are.
    places
        Per row, the file of its states and its first row there.
    """

    table: pa.Table
    taps: tuple[int, ...] = ()
    places: tuple[tuple[Path, int], ...] = ()

    def __len__(self) -> int:
        return self.table.num_rows

    @property
    def tokens(self) -> int:
        """Answer tokens in all."""
        return int(sum(len(output) for output in self.table["output_ids"].to_pylist()))

    def texts(self) -> Iterator[tuple[list[int], list[int]]]:
        """(prompt ids, answer ids) of every row."""
        prompts, outputs = (self.table[name].to_pylist() for name in ("prompt_ids", "output_ids"))
        yield from zip(prompts, outputs, strict=True)

    def states(self, row: int) -> torch.Tensor:
        """Hidden states fp16 [prompt + answer - 1, taps, hidden] of one row.

        Raises
        ------
        ValueError
            When the corpus was built without taps.
        """
        if not self.taps:
            raise ValueError("This corpus keeps no hidden states: build it with taps.")
        file, first = self.places[row]
        length = len(self.table["prompt_ids"][row]) + len(self.table["output_ids"][row]) - 1
        with safe_open(file, "pt") as shard:
            states: torch.Tensor = shard.get_slice("states")[first : first + length]
        return states

    def select(self, rows: Sequence[int] | np.ndarray) -> Corpus:
        """The same corpus with these rows only, in this order."""
        places = tuple(self.places[row] for row in rows) if self.places else ()
        return Corpus(self.table.take(pa.array(rows, pa.int64())), self.taps, places)


def build_corpus(
    target: Any,
    prompts: Sequence[Prompt],
    out: str | Path,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    max_new_tokens: int = 192,
    batch_size: int = 64,
    taps: Sequence[int] = (),
    seed: int = 0,
    progress: bool = True,
) -> Corpus:
    """Let the target answer every prompt once; resume where an earlier call stopped.

    Parameters
    ----------
    target
        A torch target (`load_target`).
    prompts
        Such as `training_prompts` makes; prompt i is answered at
        temperatures[i % len(temperatures)].
    out
        Folder of shards, one per batch, each written whole. A shard that answers the same
        prompts in the same way is not made again, so a killed build loses one batch.
    max_new_tokens
        Tokens per answer at most; an answer is cut where it begins to repeat itself.
    taps
        Layers whose output to keep for every token (fp16, about 1 kB per token and layer for
        the embedded target). The final hidden state is kept with them.

    Returns
    -------
    Corpus

    Raises
    ------
    ValueError
        For no prompts, a negative temperature, a tap the target lacks, or a target without a
        transformers model.

    Examples
    --------
    >>> corpus = build_corpus(target, training_prompts(640), "corpus")    # doctest: +SKIP
    """
    if not prompts:
        raise ValueError("No prompts to answer.")
    if not temperatures or min(temperatures) < 0:
        raise ValueError(f"Temperatures must be 0 or more, at least one, not {temperatures}.")
    whole("batch_size", batch_size, 1)
    whole("max_new_tokens", max_new_tokens, SHORTEST)
    if not isinstance(getattr(target, "lm", None), SlotLM):
        raise ValueError("A corpus is generated in batches by transformers: use a torch target.")
    depth = len(target.lm.layers)
    if any(not 1 <= tap <= depth for tap in taps):
        raise ValueError(f"{target.name} has layers 1 to {depth} to tap, not {tuple(taps)}.")
    kept = (*taps, FINAL) if taps else ()
    folder = made(out)
    lm = SlotLM(target.model, target.vocab_size)
    batches = _batches(target, prompts, temperatures, batch_size)
    files = [folder / f"{number:05d}.parquet" for number in range(len(batches))]
    with tqdm(total=len(prompts), unit="answer", desc="corpus", disable=not progress) as bar:
        for number, (file, batch) in enumerate(zip(files, batches, strict=True)):
            asked = (target.fingerprint, batch, max_new_tokens, kept, seed, number)
            key = hashlib.sha256(repr(asked).encode()).hexdigest()
            if _key(file) != key or (kept and not _whole(file)):
                draw = torch.Generator(device=lm.device)
                draw.manual_seed(int(np.random.SeedSequence((seed, number)).generate_state(1)[0]))
                answers = answer_batch(
                    lm,
                    [text for _, _, text in batch],
                    target.eos_ids,
                    temperatures=[temperature for _, temperature, _ in batch],
                    max_new_tokens=max_new_tokens,
                    generator=draw,
                    taps=kept,
                )
                _write(batch, answers, kept, key, file)
            bar.update(len(batch))
    return _read(files)


def check_corpus(corpus: Corpus, target: Any) -> None:
    """Refuse a corpus whose hidden states are not the target's, by looking at one answer.

    Raises
    ------
    ValueError
        When it has other layers or sizes, or the states are another model's.
    """
    (text,) = corpus.select([0]).texts()
    tokens = [*text[0], *text[1][:-1]]
    held = corpus.states(0)[:, -1].float()
    apart = math.inf
    if max(tokens) < target.vocab_size and max(corpus.taps) <= len(target.lm.layers):
        final, _ = SlotLM(target.model, target.vocab_size).forward(tokens, 0)
        if final.shape == held.shape:
            apart = float((final.float().cpu() - held).norm() / held.norm())
    if not apart <= _CLOSE:
        raise ValueError(
            f"This corpus holds the states of another target than {target.name}: build one with "
            "`specviz corpus` for this target."
        )


def default_taps(target: Any) -> tuple[int, ...]:
    """An early, a middle and a late layer: 2, 15 and 28 of the embedded target's 30."""
    depth = len(target.lm.layers)
    return tuple(sorted({min(2, depth), max(depth // 2, 1), max(depth - 2, 1)}))


def load_corpus(*folders: str | Path) -> Corpus:
    """Every shard of one or more corpus folders.

    Raises
    ------
    ValueError
        When a folder has no shards, one of them is damaged, or their taps differ.
    """
    files = []
    for folder in folders:
        shards = sorted(Path(folder).glob("[0-9]*.parquet"))
        if not shards:
            raise ValueError(f"No corpus in {folder}: build one first.")
        files += shards
    if not files:
        raise ValueError("Name at least one corpus folder.")
    return _read(files)


def _batches(
    target: Any, prompts: Sequence[Prompt], temperatures: Sequence[float], size: int
) -> list[list[_Asked]]:
    """Batches of like length, so that little is padded; sorted in stretches of a few batches,
    so that any few batches hold about the same mix."""
    asked = [
        (prompt, float(temperatures[i % len(temperatures)]), target.codec.encode(prompt.messages))
        for i, prompt in enumerate(prompts)
    ]
    batches = []
    for low in range(0, len(asked), _STRETCH * size):
        stretch = sorted(asked[low : low + _STRETCH * size], key=lambda one: len(one[2]))
        batches += [stretch[i : i + size] for i in range(0, len(stretch), size)]
    return batches


def _write(
    batch: Sequence[_Asked],
    answers: Sequence[Answer],
    taps: tuple[int, ...],
    key: str,
    file: Path,
) -> None:
    """The states first: the table is what says that a shard is whole."""
    rows, states = [], []
    for (prompt, temperature, _), answer in zip(batch, answers, strict=True):
        if len(answer.tokens) < SHORTEST:
            continue
        row = (prompt.id, prompt.content_type, temperature, answer.prompt, answer.tokens)
        rows.append(dict(zip(_SCHEMA.names, row, strict=True)))
        if answer.states is not None:
            states.append(answer.states)
    if states:
        with placed(file.with_suffix(".safetensors")) as temporary:
            save_file({"states": torch.cat(states), "taps": torch.tensor(taps)}, temporary)
    table = pa.Table.from_pylist(rows, schema=_SCHEMA)
    write_table(table.replace_schema_metadata({_KEY: key}), file)


def _read(files: Sequence[Path]) -> Corpus:
    tables, taps, places = [], set(), []
    for file in files:
        tables.append(_table(file))
        texts = Corpus(tables[-1]).texts()
        sizes = [len(prompt) + len(output) - 1 for prompt, output in texts]
        states = file.with_suffix(".safetensors")
        if sizes:
            taps.add(_taps(states, sum(sizes)) if states.exists() else ())
        places += [(states, end - size) for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
    if len(taps) > 1:
        raise ValueError(f"Shards of this corpus keep different taps ({sorted(taps)}): rebuild it.")
    kept = taps.pop() if taps else ()
    return Corpus(pa.concat_tables(tables), kept, tuple(places) if kept else ())


def _table(file: Path) -> pa.Table:
    try:
        return pq.read_table(file, schema=_SCHEMA)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(file, error) from None


def _taps(file: Path, rows: int) -> tuple[int, ...]:
    try:
        with safe_open(file, "pt") as shard:
            found = shard.get_slice("states").get_shape()[0]
            if found != rows:
                raise _damaged(file, f"{found} rows of states for {rows} tokens")
            return tuple(shard.get_tensor("taps").tolist())
    except (SafetensorError, OSError) as error:
        raise _damaged(file, error) from None


def _damaged(file: Path, why: object) -> ValueError:
    first = str(why).splitlines()[0]
    return ValueError(f"{file} is damaged ({first}): delete that shard and build again.")


def _whole(file: Path) -> bool:
    """Whether a shard that was asked for states has them; one without answers needs none."""
    return file.with_suffix(".safetensors").exists() or pq.read_metadata(file).num_rows == 0


def _key(file: Path) -> str | None:
    """What a shard was asked, None when it is not there or damaged."""
    try:
        return (pq.read_schema(file).metadata or {}).get(_KEY, b"").decode()
    except (pa.ArrowInvalid, OSError):
        return None
