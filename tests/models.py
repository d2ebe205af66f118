"""Small exact models for tests: toy Markov chains, and a tiny random Llama in float64."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specviz.drafters.lm import LMDrafter
from specviz.drafters.markov import MarkovDrafter
from specviz.drafters.ngram import NGram
from specviz.drafters.self_draft import SelfQuant, SelfSkip
from specviz.drafters.weights import Weights, sample_of
from specviz.engine.protocols import FINAL, Drafter, Target
from specviz.targets.slots import SlotLM
from specviz.targets.torch_lm import TorchTarget
from specviz.targets.toy import MarkovModel, ToyTarget
from specviz.training.answers import answer_batch
from specviz.training.batches import side_by_side
from specviz.training.students import EagleStudent

VOCAB = 288


@lru_cache(maxsize=1)
def tokenizer() -> Any:
    """One token per byte, a few spare ones, and an end of text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(letters)}
    vocab.update({f"spare{i}": i for i in range(len(letters), VOCAB - 1)})
    vocab["<end>"] = VOCAB - 1
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>")
    wrapped.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}<assistant>"
    )
    return wrapped


def tiny_llama(seed: int = 0, layers: int = 4, dtype: torch.dtype = torch.float64) -> Any:
    """A random Llama whose distributions are neither flat nor certain."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB + 32,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        eos_token_id=VOCAB - 1,
    )
    model = LlamaForCausalLM(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4.0)
        # The last layer adds little, so that a draft without it is often right.
        for part in (model.model.layers[-1].self_attn.o_proj, model.model.layers[-1].mlp.down_proj):
            part.weight.mul_(0.1)
    return model.eval()


def tiny_target(seed: int = 0) -> TorchTarget:
    return TorchTarget(tiny_llama(seed), tokenizer(), "tiny-llama", "random tiny Llama, float64")


def near_twin(seed: int = 0, noise: float = 0.02) -> Any:
    """The tiny Llama with perturbed weights: a drafter that is often right."""
    twin = tiny_llama(seed)
    generator = torch.Generator().manual_seed(99)
    with torch.no_grad():
        for parameter in twin.parameters():
            wobble = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(noise * parameter.std() * wobble if parameter.dim() == 2 else 0.0)
    return twin


@lru_cache(maxsize=1)
def fitted_eagle() -> Weights:
    """An EAGLE head of the tiny Llama, fitted for some seconds to a few of its answers."""
    target = tiny_target()
    text = target.codec.encode("the quick brown fox and the quick brown")
    prompts = [text, text[:20], text[4:], text[8:30]]
    answers = answer_batch(
        SlotLM(target.model, target.vocab_size),
        prompts,
        (),
        temperatures=[0.0] * 4,
        max_new_tokens=40,
        generator=torch.Generator(),
        taps=(1, 2, 3, FINAL),
    )
    torch.manual_seed(0)
    student = EagleStudent(target.model, (1, 2, 3), torch.arange(0, VOCAB - 8))
    batch = side_by_side([(a.prompt, a.tokens, a.states) for a in answers], torch.device("cpu"))
    optimiser = torch.optim.AdamW(student.net.parameters(), 3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        student.loss(batch)[0].backward()
        optimiser.step()
    tensors = {name: tensor.clone() for name, tensor in student.weights().items()}
    tensors["vocabulary"] = student.vocabulary
    return Weights("eagle", {"taps": (1, 2, 3)}, tensors, sample_of(target.model))


def toy_pair(eos: bool = False) -> tuple[ToyTarget, MarkovDrafter]:
    """A toy target and a drafter that agrees with it most of the time."""
    chain = MarkovModel.random(8, order=2, seed=3)
    other = MarkovModel.random(8, order=2, seed=4)
    target = ToyTarget(chain, eos_ids=[5] if eos else [])
    return target, MarkovDrafter(chain.mixed_with(other, 0.5))


def cases() -> dict[str, tuple[Target, Drafter]]:
    """Every (target, drafter) pair that is exact; oracles need an answer and come apart."""
    toy, markov = toy_pair()
    tiny = tiny_target()
    return {
        "toy-markov": (toy, markov),
        "toy-ngram": (toy, NGram()),
        "tiny-ngram": (tiny, NGram()),
        "tiny-lm": (tiny, LMDrafter(near_twin(), tokenizer())),
        "tiny-self-quant": (tiny, SelfQuant(6)),
        "tiny-self-skip": (tiny, SelfSkip([3])),
    }
