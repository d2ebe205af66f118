"""Every class, argument and parameter of exllamav3 that specviz uses, found in the installed wheel.

Read with `ast`: neither exllamav3 nor torch is imported for it. The library takes unknown
keyword arguments without a word, so a renamed one would otherwise pass unnoticed.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from tests.exl3.stand_ins import VERSION, why_not

pytestmark = [
    pytest.mark.exl3,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
]

#: Arguments, by file and qualified name.
ARGUMENTS = {
    ("model/config.py", "Config.from_directory"): "directory",
    ("model/model.py", "Model.from_config"): "config component",
    ("model/model.py", "Model.forward"): "input_ids params",
    ("model/model.py", "Model.prefill"): "input_ids params",
    ("model/model.py", "Model.get_recurrent_layers"): "",
    ("model/model.py", "Model.unload"): "",
    ("model/model.py", "Model.load_gen"): (
        "device reserve_per_device use_per_device max_chunk_size max_output_size draft_model "
        "progressbar"
    ),
    ("cache/cache.py", "Cache.__init__"): (
        "model max_num_tokens layer_type max_batch_size max_history"
    ),
    ("cache/cache.py", "Cache.copy_page"): "target from_page to_page num_tokens",
    ("cache/cache.py", "Cache.get_new_state"): "",
    ("cache/cache.py", "Cache.reset_states"): "",
    ("cache/cache.py", "Cache.detach_from_model"): "",
    ("cache/quant.py", "CacheLayer_quant.__init__"): "k_bits v_bits",
    ("architecture/dflash2.py", "DFlash2Model.attach_to"): "target",
    ("architecture/dflash2.py", "DFlash2Model.update_kv_from_target"): (
        "target_hidden cache params lengths"
    ),
    ("architecture/dflash2.py", "DFlash2Model.sample_from_state"): "state params",
    ("architecture/dflash.py", "DFlashModel.update_kv_from_target"): (
        "target_hidden cache params lengths"
    ),
    ("architecture/qwen3_5_mtp.py", "Qwen3_5MTPModel.attach_to"): "target",
    ("modules/gated_delta_net.py", "GDNState.rewind"): "num_tokens",
    ("modules/gated_delta_net.py", "GDNState.free"): "",
    ("modules/gated_delta_net.py", "GDNLayerState.storage_size"): "",
    ("generator/generator.py", "Generator.__init__"): (
        "model cache tokenizer max_chunk_size draft_model draft_cache num_draft_tokens "
        "ngram_match_min dynamic_draft_tokens draft_confidence"
    ),
    ("generator/generator.py", "Generator.close"): "",
    ("modules/sliding_attn.py", "SWAState.rewind"): "num_tokens",
    ("modules/sliding_attn.py", "SWAState.free"): "",
    ("generator/generator.py", "Generator.iterate_gen"): "results draft_tokens",
    ("generator/generator.py", "Generator.iterate_draftmodel_gen"): "results window",
    ("generator/generator.py", "Generator.iterate_draftmodel_mtp_gen"): "results window",
    ("generator/generator.py", "Generator.iterate_draftmodel_dflash_gen"): "results window",
    ("generator/generator.py", "Generator.iterate_ngram_gen"): "results",
    ("generator/job.py", "Job.__init__"): "input_ids max_new_tokens stop_conditions sampler seed",
    ("generator/job.py", "Job.is_prefill_done"): "",
    ("generator/sampler/presets.py", "ComboSampler.__init__"): "temperature top_k top_p",
    ("tokenizer/tokenizer.py", "Tokenizer.from_config"): "config",
}
#: Keys of parameters, results and capabilities, by the function that reads or writes them.
KEYS = {
    ("modules/attn.py", "prepare_for_attn"): "attn_mode",
    ("modules/attn.py", "prepare_flash_attn"): "block_table cache_seqlens",
    ("modules/transformer.py", "TransformerBlock.forward"): "export_state_layers export_states",
    ("modules/rmsnorm.py", "RMSNorm.forward"): "export_state_norm_keys export_states",
    ("model/model_ls.py", "Model_LSMixin.forward_ls"): "last_tokens_only",
    ("cache/recurrent_util.py", "prepare_for_recurrence"): "recurrent_states recurrent_history",
    ("cache/recurrent_util.py", "advance_recurrent_states"): "spec_row",
    ("architecture/dflash2.py", "DFlash2Model.__init__"): (
        "default_draft_size dflash_draft attach_target"
    ),
    ("architecture/qwen3_5_mtp.py", "Qwen3_5MTPModel.__init__"): "mtp_draft default_draft_size",
    ("architecture/qwen3_5.py", "Qwen3_5BaseModel.__init__"): "recurrent_states",
    ("modules/arch_specific/qwen3_5_mtp.py", "Qwen3_5MTPInputLayer.forward"): "target_hidden",
    ("generator/generator.py", "Generator.iterate_draftmodel_mtp_gen"): (
        "target_hidden draft_step next_target_hidden"
    ),
    ("generator/generator.py", "Generator.iterate_gen"): "recurrent_history",
    ("generator/job.py", "Job.receive_sample"): (
        "eos eos_reason stop_token accepted_draft_tokens rejected_draft_tokens"
    ),
}
#: Attributes that specviz reads or sets, by the function that makes them.
ATTRIBUTES = {
    ("cache/cache.py", "Cache.__init__"): (
        "initialized max_num_tokens max_history layers recurrent_layers recurrent_state_cls"
    ),
    ("modules/gated_delta_net.py", "GDNState.__init__"): "slot position last_history parity",
    ("modules/gated_delta_net.py", "GDNLayerState.__init__"): "module conv_state",
    ("modules/sliding_attn.py", "SWALayerState.__init__"): "module",
    ("modules/sliding_attn.py", "SWAState.__init__"): "position",
    ("modules/mamba2.py", "Mamba2.__init__"): "conv_kernel_size",
    ("modules/gated_delta_net.py", "GatedDeltaNet.__init__"): "conv_kernel_size",
    ("architecture/dflash2.py", "DFlash2Model.__init__"): "selector",
    ("architecture/dflash2.py", "DFlash2Config.__init__"): (
        "output_multiplier final_logit_softcapping"
    ),
    ("architecture/dflash.py", "DFlashConfig.__init__"): "target_layer_ids",
    ("modules/arch_specific/dflash2.py", "DFlash2Selector.load"): "pred_codebook succ_codebook",
    ("modules/arch_specific/dflash2.py", "DFlash2Selector.__init__"): "top_k hidden_proj",
    ("generator/job.py", "Job.__init__"): "sequences",
    ("generator/generator.py", "Generator.__init__"): "active_jobs filter_pool",
    ("model/config.py", "Config.__init__"): "model_classes",
}
PUBLIC = [
    "Config",
    "Model",
    "Cache",
    "CacheLayer_quant",
    "Tokenizer",
    "Generator",
    "Job",
    "GreedySampler",
    "ComboSampler",
]


def root() -> Path:
    spec = importlib.util.find_spec("exllamav3")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@functools.lru_cache
def tree(file: str) -> ast.Module:
    return ast.parse((root() / file).read_text(encoding="utf-8"))


def found(file: str, name: str) -> ast.AST:
    node: ast.AST = tree(file)
    for part in name.split("."):
        node = next(
            child
            for child in getattr(node, "body", ())
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
        )
    return node


def test_the_version_is_the_one_that_was_read() -> None:
    from specviz.exl3 import checks

    assert importlib.metadata.version("exllamav3") == VERSION == checks.VERSION


@pytest.mark.parametrize("place", ARGUMENTS, ids=lambda place: place[1])
def test_arguments(place: tuple[str, str]) -> None:
    node = found(*place)
    assert isinstance(node, ast.FunctionDef)
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    assert not set(ARGUMENTS[place].split()) - {each.arg for each in given}


@pytest.mark.parametrize("place", KEYS, ids=lambda place: place[1])
def test_keys(place: tuple[str, str]) -> None:
    said = {node.value for node in ast.walk(found(*place)) if isinstance(node, ast.Constant)}
    said |= {node.attr for node in ast.walk(found(*place)) if isinstance(node, ast.Attribute)}
    assert not set(KEYS[place].split()) - said


@pytest.mark.parametrize("place", ATTRIBUTES, ids=lambda place: place[1])
def test_attributes(place: tuple[str, str]) -> None:
    made = {
        node.attr
        for node in ast.walk(found(*place))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    }
    assert not set(ATTRIBUTES[place].split()) - made


def test_public_names() -> None:
    said = {
        alias.asname or alias.name
        for file in root().rglob("__init__.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert not set(PUBLIC) - said


def test_the_sources_provide_for_turing() -> None:
    said = (root() / "exllamav3_ext" / "arch.cuh").read_text(encoding="utf-8")
    assert "sm_75" in said


def test_architectures_with_rings_are_those_that_doctor_knows() -> None:
    from specviz.doctor_target import RINGS

    found = set()
    for file in (root() / "architecture").glob("*.py"):
        nodes = list(ast.walk(tree(f"architecture/{file.name}")))
        if any(isinstance(node, ast.Name) and node.id == "SlidingAttention" for node in nodes):
            found |= {
                str(node.value.value)
                for node in nodes
                if isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Constant)
                and any(getattr(name, "id", "") == "arch_string" for name in node.targets)
            }
    assert {name for name in found if "DFlash" not in name} == RINGS
