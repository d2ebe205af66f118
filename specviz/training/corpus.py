"""The training corpus: the target's own answers, made in batches and kept in Parquet.

A drafter has to guess what this target says, so it learns from what this target said
(self-distillation): greedy and sampled answers to prompts that no evaluation uses, cut where
they begin to loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tqdm.auto import tqdm

from specviz.engine.record import repeated
from specviz.prompt_set import Prompt
from specviz.trace.store import write_table

#: Greedy answers and three warmth levels, in turn from batch to batch.
TEMPERATURES = (0.0, 0.6, 0.8, 1.0)
#: A shorter answer teaches nothing worth a row.
SHORTEST = 8

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


@dataclass(frozen=True)
class Corpus:
    """Prompts and answers of one target, as token ids.

    Attributes
    ----------
    table
        One row per answer: prompt_id, content_type, temperature, prompt_ids, output_ids.
    """

    table: pa.Table

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


def build_corpus(
    target: Any,
    prompts: Sequence[Prompt],
    out: str | Path,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    max_new_tokens: int = 192,
    batch_size: int = 64,
    seed: int = 0,
    progress: bool = True,
) -> Corpus:
    """Let the target answer every prompt once; resume where an earlier call stopped.

    Parameters
    ----------
    target
        A torch target (`load_target`).
    prompts
        Such as `training_prompts` makes; batch i is answered at
        temperatures[i % len(temperatures)].
    out
        Folder of Parquet shards, one per batch, each written whole. A shard that answers the
        same prompts in the same way is not made again, so a killed build loses one batch.
    max_new_tokens
        Tokens per answer at most; an answer is cut where it begins to repeat itself.

    Returns
    -------
    Corpus

    Raises
    ------
    ValueError
        For no prompts, a negative temperature, or a target without a transformers model.
    """
    if not prompts:
        raise ValueError("No prompts to answer.")
    if not temperatures or min(temperatures) < 0:
        raise ValueError(f"Temperatures must be 0 or more, at least one, not {temperatures}.")
    if batch_size < 1 or max_new_tokens < SHORTEST:
        raise ValueError(
            f"batch_size must be at least 1 and max_new_tokens at least {SHORTEST}, not "
            f"{batch_size} and {max_new_tokens}."
        )
    if not hasattr(getattr(target, "model", None), "generate"):
        raise ValueError("A corpus is generated in batches by transformers: use a torch target.")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    batches = range(0, len(prompts), batch_size)
    files = [folder / f"{number:05d}.parquet" for number in range(len(batches))]
    with tqdm(total=len(prompts), unit="answer", desc="corpus", disable=not progress) as bar:
        for number, first in enumerate(batches):
            batch = prompts[first : first + batch_size]
            file = files[number]
            temperature = float(temperatures[number % len(temperatures)])
            asked = (target.name, batch, temperature, max_new_tokens, seed, number)
            key = hashlib.sha256(repr(asked).encode()).hexdigest()
            if _key(file) != key:
                rows = _answers(target, batch, temperature, max_new_tokens, (seed, number))
                table = pa.Table.from_pylist(rows, schema=_SCHEMA)
                write_table(table.replace_schema_metadata({_KEY: key}), file)
            bar.update(len(batch))
    return _read(files)


def load_corpus(folder: str | Path) -> Corpus:
    """Every shard of a corpus folder.

    Raises
    ------
    ValueError
        When the folder has no shards, or one of them is damaged.
    """
    files = sorted(Path(folder).glob("[0-9]*.parquet"))
    if not files:
        raise ValueError(f"No corpus in {folder}: build one first.")
    return _read(files)


def _read(files: Sequence[Path]) -> Corpus:
    tables = []
    for file in files:
        try:
            tables.append(pq.read_table(file, schema=_SCHEMA))
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(
                f"{file} is damaged ({str(error).splitlines()[0]}): delete it and build again."
            ) from None
    return Corpus(pa.concat_tables(tables))


def before_loop(tokens: Sequence[int]) -> list[int]:
    """An answer up to where it begins to repeat a run of 12 tokens."""
    flags = repeated(tokens)
    first = int(np.argmax(flags)) if flags.any() else len(tokens)
    return list(tokens[:first])


@torch.inference_mode()
def _answers(
    target: Any,
    prompts: Sequence[Prompt],
    temperature: float,
    max_new_tokens: int,
    seed: tuple[int, int],
) -> list[dict[str, Any]]:
    """One batch, padded on the left, answered by transformers."""
    texts = [target.codec.encode(prompt.messages) for prompt in prompts]
    width = max(map(len, texts))
    pad = min(target.eos_ids, default=0)
    ids = torch.tensor([[pad] * (width - len(text)) + list(text) for text in texts])
    mask = torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts])
    torch.manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    warm = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
    device = target.lm.device
    rows_of_head = target.model.get_output_embeddings().weight.shape[0]
    padding = list(range(target.vocab_size, rows_of_head))  # rows that are no tokens
    made = target.model.generate(
        input_ids=ids.to(device),
        attention_mask=mask.to(device),
        max_new_tokens=max_new_tokens,
        pad_token_id=pad,
        top_k=0,
        suppress_tokens=padding or None,
        **warm,
    )
    rows = []
    for prompt, text, output in zip(prompts, texts, made[:, width:].tolist(), strict=True):
        answer = before_loop(_to_end(output, target.eos_ids))
        if len(answer) >= SHORTEST:
            rows.append(
                {
                    "prompt_id": prompt.id,
                    "content_type": prompt.content_type,
                    "temperature": temperature,
                    "prompt_ids": list(text),
                    "output_ids": answer,
                }
            )
    return rows


def _to_end(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    """Up to and including the first end of text; what follows is padding."""
    for index, token in enumerate(tokens):
        if token in eos_ids:
            return tokens[: index + 1]
    return tokens


def _key(file: Path) -> str | None:
    """What a shard was asked, None when it is not there or damaged."""
    try:
        return (pq.read_schema(file).metadata or {}).get(_KEY, b"").decode()
    except (pa.ArrowInvalid, OSError):
        return None
