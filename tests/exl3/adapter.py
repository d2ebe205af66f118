"""exllamav3 1.6.5 behind specviz's Target and Drafter protocols, by its low-level forward.

A proof that the protocols fit, run on exllamav3's Python code with CPU operator stand-ins.
Call what is here only while `tests.exl3.stand_ins.installed()` is in force.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from specviz.engine.inputs import Ids, Prompt, check_ids, fingerprint_of
from specviz.engine.picking import ARGMAX, Pick
from specviz.engine.protocols import FINAL, Draft, Drafts, More, Reference, Rows, Target
from specviz.policies import DraftView, Plan


def load(
    target: Path, drafter: Path | None = None, tokens: int = 1024
) -> tuple[Exl3Target, DFlash2Drafter | None]:
    """Load in exllamav3's order: every cache before any weights, the drafter's weights first.

    A cache gets its tensors from the loading of its model. The drafter goes first because the
    target's loader shares the devices out by what is left of them.
    """
    exl3: Any = import_module("exllamav3")

    def model(folder: Path) -> Any:
        config = exl3.Config.from_directory(str(folder), load_method="python")
        return exl3.Model.from_config(config)

    verifier, block = model(target), model(drafter) if drafter else None
    history = block.caps["default_draft_size"] if block else 0
    cache = exl3.Cache(verifier, max_num_tokens=tokens, max_history=history)
    draft_cache = exl3.Cache(block, max_num_tokens=tokens, max_history=history) if block else None
    if block:
        block.load(device="cpu")
    verifier.load(device="cpu", draft_model=block)
    tokenizer = exl3.Tokenizer.from_config(verifier.config)
    return (
        Exl3Target(verifier, cache, tokenizer, target.name),
        DFlash2Drafter(block, draft_cache) if block else None,
    )


def _place(cache: Any, length: int) -> dict[str, Any]:
    """Parameters of a forward that writes behind `length` tokens; a fresh dict per call."""
    pages = torch.arange(cache.max_num_tokens // 256, dtype=torch.int32)[None]
    return {
        "attn_mode": "flash_attn",
        "cache": cache,
        "block_table": pages,
        "cache_seqlens": torch.tensor([length], dtype=torch.int32),
    }


def _check_cache(cache: Any) -> None:
    if not cache.initialized:
        raise ValueError("The cache has no tensors: make it before the model's weights load.")


class Exl3Codec:
    """exllamav3's tokenizer as specviz uses one."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @property
    def template(self) -> Mapping[str, str]:
        file = Path(self.tokenizer.config.directory) / "chat_template.jinja"
        text = file.read_text() if file.exists() else ""
        return {"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()}

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        ids = _ids(prompt)
        if ids is None:
            text = self.render(prompt)
            ids = tuple(self.tokenizer.encode(text, encode_special_tokens=True)[0].tolist())
        return ids

    def render(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        ids = _ids(prompt)
        if ids is not None:
            return self.decode(ids)
        return str(self.tokenizer.hf_render_chat_template(list(prompt)))

    def decode(self, tokens: Ids) -> str:
        ids = torch.tensor(list(tokens), dtype=torch.long)
        return str(self.tokenizer.decode(ids, decode_special_tokens=True))

    def token_text(self, token: int) -> str:
        return self.decode([token])


def _ids(prompt: Prompt) -> tuple[int, ...] | None:
    """The prompt's token ids if that is what it is made of, else None."""
    ids = tuple(token for token in prompt if isinstance(token, int))
    return ids if len(ids) == len(prompt) else None


class Exl3Target:
    """An exllamav3 model as a target: chains only, because its attention takes no mask."""

    supports_trees = False
    dtype, device = "float16", "cpu"

    def __init__(self, model: Any, cache: Any, tokenizer: Any, name: str) -> None:
        _check_cache(cache)
        self.model, self.cache, self.name = model, cache, name
        self.codec = Exl3Codec(tokenizer)
        self.caption = f"{name}: exllamav3's Python code with CPU operator stand-ins, fp16"
        self.fingerprint = fingerprint_of(name)  # the tests know their models by name
        # The head is padded, and may have more rows than the tokenizer has tokens.
        self.vocab_size = min(model.config.vocab_size, tokenizer.actual_vocab_size)
        self.eos_ids = frozenset(model.config.eos_token_id_list)
        self.session = self.verifies = self._length = 0
        self._taps: tuple[int, ...] = ()
        self._pending: Draft | None = None

    def prefill(self, prompt: Ids, taps: Sequence[int] = ()) -> Rows:
        check_ids(prompt, self.vocab_size)
        layers = self.model.config.num_hidden_layers
        for tap in taps:
            if tap != FINAL and not 0 < tap <= layers:
                raise ValueError(f"No hidden state after layer {tap}: {self.name} has {layers}.")
        self.session += 1
        self.verifies, self._length, self._pending = 0, 0, None
        self._taps = tuple(taps)
        rows = self._forward(prompt, last_tokens_only=1)
        self._length = len(prompt)
        return rows

    def verify(self, draft: Draft) -> Rows:
        if not draft.is_chain:
            raise ValueError(f"{self.name} verifies a chain of tokens, not a tree: draft a chain.")
        check_ids((draft.anchor, *draft.tokens), self.vocab_size)
        rows = self._forward((draft.anchor, *draft.tokens))
        self._pending = draft
        self.verifies += 1
        return rows

    def commit(self, path: Sequence[int]) -> None:
        if self._pending is None:
            raise RuntimeError("Nothing to commit: verify a draft first.")
        self._pending.check_path(path)
        # The accepted nodes of a chain lie in their places; the next forward overwrites the rest.
        self._length += 1 + len(path)
        self._pending = None

    def memory(self) -> dict[str, int]:
        return {}  # not measured here

    @torch.inference_mode()
    def unembed(self, hidden: torch.Tensor) -> torch.Tensor:
        head = self.model.modules[self.model.logit_layer_idx]
        params: dict[str, Any] = {}
        logits: torch.Tensor = head.forward(head.prepare_for_device(hidden, params), params)
        return logits[..., : self.vocab_size]

    def synchronize(self) -> None:
        """Nothing to wait for on a CPU."""

    def _forward(self, tokens: Ids, **options: int) -> Rows:
        if self._length + len(tokens) > self.cache.max_num_tokens:
            raise ValueError(f"The cache holds {self.cache.max_num_tokens} tokens: make it larger.")
        params = _place(self.cache, self._length) | options
        layers = sorted(tap for tap in self._taps if tap != FINAL)
        params["export_state_layers"] = {tap - 1 for tap in layers}  # numbered by layer output
        if FINAL in self._taps:
            params["export_state_norm_keys"] = {
                self.model.modules[self.model.logit_layer_idx - 1].key
            }
        logits = self.model.forward(torch.tensor([list(tokens)]), params)
        order = [*layers, FINAL] if FINAL in self._taps else layers
        taken = zip(order, params.get("export_states", ()), strict=True)  # in order of execution
        return Rows(logits[0, :, : self.vocab_size], {tap: states[0] for tap, states in taken})


class DFlash2Drafter:
    """exllamav3's DFlash2 draft model, fed with the target's hidden states after every round.

    Its tokens are the selector's greedy path. `logq` and `entropy` are of the rows before the
    selector's pairwise term, `confidence` is q of the token there.
    """

    simulated_cost = False
    _target: Exl3Target

    def __init__(self, model: Any, cache: Any, name: str = "dflash2") -> None:
        _check_cache(cache)
        self.model, self.cache, self.name = model, cache, name
        self.caption = "DFlash2: exllamav3's Python code with CPU operator stand-ins"
        self.fingerprint = fingerprint_of(name)
        self.max_k: int = model.caps["default_draft_size"]
        # Ascending, the order in which update_kv_from_target wants them.
        self.taps = tuple(sorted(layer + 1 for layer in model.config.target_layer_ids))
        self._length = 0  # tokens whose hidden states it has seen: all before the anchor

    def attach(self, target: Target) -> None:
        if not isinstance(target, Exl3Target):
            raise ValueError(f"DFlash2 borrows the head of an exllamav3 target, not {target.name}.")
        self.model.attach_to(target.model)
        self._target = target

    def start(self, prompt: Ids, rows: Rows) -> None:
        self._length = 0
        self._feed(rows, range(len(prompt)))

    def observe(self, rows: Rows, path: Sequence[int]) -> None:
        self._feed(rows, [0, *(node + 1 for node in path)])

    @torch.inference_mode()
    def _feed(self, rows: Rows, kept: Sequence[int]) -> None:
        states = [rows.taps[tap][list(kept)][None] for tap in self.taps]
        self.model.update_kv_from_target(states, self.cache, _place(self.cache, self._length))
        self._length += len(kept)

    @torch.inference_mode()
    def propose(self, context: Ids, plan: Plan, more: More, pick: Pick = ARGMAX) -> Draft:
        k = min(plan.k, self.max_k)
        if k < 1:
            return Draft(context[-1])
        params = _place(self.cache, self._length)
        state = self.model.forward(torch.tensor([[context[-1]]]), params)
        tokens = self.model.sample_from_state(state, params)[0, 1 : 1 + k].tolist()
        # The selector may choose a row of the head that is no token of the tokenizer.
        k = next((i for i, t in enumerate(tokens) if t >= self._target.vocab_size), k)
        logits = self._target.unembed(state[0, 1 : 1 + k]).float()
        logp = (logits * self.model.config.output_multiplier).log_softmax(-1)
        logq = logp.gather(-1, torch.tensor(tokens[:k])[:, None])[:, 0]
        said = logq.tolist(), (-logp.exp() * logp).sum(-1).tolist(), logq.exp().tolist()
        for depth in range(1, k):
            if not more(DraftView(plan, *(column[:depth] for column in said))):
                k = depth
                break
        return Draft.chain(context[-1], tokens[:k], *(column[:k] for column in said))

    def propose_all(self, reference: Reference, k: int) -> Drafts:
        raise NotImplementedError("This adapter drafts live only; capture needs propose_all.")
