"""What `specviz doctor` says, and the sentences for machines on which exllamav3 cannot run."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension
from typer.testing import CliRunner

from specviz import doctor_report
from specviz.cli import app
from specviz.doctor_report import CONFIG_27B, doctor
from specviz.doctor_target import judge
from specviz.exl3 import checks
from specviz.exl3.folders import check_files
from specviz.exl3.images import images, named, runs_on
from specviz.exl3.load import load_exl3
from specviz.exl3.placing import for_the_drafter, placement
from specviz.zoo import _refuse_offloaded

T4 = {"name": "Tesla T4", "capability": (7, 5), "total_bytes": 15.6e9, "free_bytes": 15.5e9}
DENSE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 8192,
    "vocab_size": 128_256,
    "dtype": "bfloat16",
}


def model(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_text_and_the_json_say_the_same() -> None:
    found = doctor()
    text = CliRunner().invoke(app, ["doctor"])
    said = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)
    assert text.exit_code == 0
    assert said["next"] == found.next
    assert said["next"] in text.output
    for name, version in said["packages"].items():
        assert name in text.output
        assert (version or "missing") in text.output
    assert "Not verified on T4" in said["note"]
    assert said["note"] in text.output
    assert (said["exllamav3"]["why_not"] is None) == bool(
        said["gpus"] and said["exllamav3"]["extension"]
    )


def test_the_next_command_follows_from_what_is_missing() -> None:
    there = {"torch": "2.13", "transformers": "5"}
    exl3 = {"version": "1.6.5", "triton": "3.9", "extension": "f.so", "why_not": None}

    def said(found: list[dict[str, Any]], **change: Any) -> str:
        return doctor_report._next(there, found, exl3 | change, None)

    assert said([]) == "specviz fetch"
    assert said([T4], version=None) == "pip install exllamav3==1.6.5"
    assert said([T4], triton=None) == "pip install triton"
    build = 'TORCH_CUDA_ARCH_LIST=7.5 MAX_JOBS=4 python -c "import exllamav3"'
    assert said([T4], extension=None) == build
    assert said([T4], why_not="f.so holds code for sm_80 and Tesla T4 ...") == build
    assert said([T4]).startswith("specviz doctor --target")


@pytest.mark.parametrize(
    ("version", "found", "extension", "devices", "match", "triton"),
    [
        (None, [T4], "file", 1, "not installed: pip install exllamav3==1.6.5", True),
        ("1.5.0", [T4], "file", 1, "1.5.0 is installed", True),
        ("1.6.5", [], "file", 1, "needs a CUDA GPU", True),
        ("1.6.5", [T4 | {"capability": (6, 1)}], "file", 1, "capability 6.1", True),
        ("1.6.5", [T4], "file", 2, "2 GPUs were asked for and torch sees 1", True),
        ("1.6.5", [T4], None, 1, "not compiled yet: build it once", True),
        ("1.6.5", [T4, T4], "file", 2, None, True),
        ("1.6.5", [T4], "file", 1, "pip install triton", False),
    ],
)
def test_one_sentence_says_why_not(
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    found: list[dict[str, Any]],
    extension: str | None,
    devices: int,
    match: str | None,
    triton: bool,
) -> None:
    monkeypatch.setattr(checks, "installed_version", lambda: version)
    monkeypatch.setattr(checks, "gpus", lambda: found)
    monkeypatch.setattr(checks, "extension_file", lambda: extension and Path(extension))
    monkeypatch.setattr(checks, "images", lambda file: frozenset({("sm", 75)}))
    monkeypatch.setattr(checks, "has_triton", lambda: triton)
    said = checks.why_not(devices)
    if match is None:
        assert said is None
        return
    assert said is not None
    assert match in said
    assert said.endswith(".")
    with pytest.raises(ImportError, match=r"exllamav3|compute capability|GPUs|Triton"):
        checks.library(devices)


def test_folders_and_numbers_are_checked_before_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no config\.json"):
        load_exl3(tmp_path)
    with pytest.raises(ValueError, match="JSON object"):
        load_exl3(model(tmp_path / "broken", []))  # type: ignore[arg-type]
    folder = model(tmp_path / "model", CONFIG_27B)
    with pytest.raises(ValueError, match="devices"):
        load_exl3(folder, devices=0)
    with pytest.raises(ValueError, match="cache_bits"):
        load_exl3(folder, cache_bits=9)
    with pytest.raises(ValueError, match="not both"):
        load_exl3(folder, reserve_per_device=[1, 1], use_per_device=[9, 9])
    with pytest.raises(ValueError, match=r"2 number\(s\)"):
        load_exl3(folder, use_per_device=[9])
    with pytest.raises(ValueError, match="reserve_per_device must be a list"):
        load_exl3(folder, reserve_per_device=1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"2 number\(s\)"):
        load_exl3(folder, reserve_per_device=["1", "1"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="leaves no GPU"):
        load_exl3(folder, use_per_device=[0, 0])
    with pytest.raises(ValueError, match="target_dir must be the path"):
        load_exl3(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draft must be the path"):
        load_exl3(folder, draft=["mtp"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tokens must be a whole number"):
        load_exl3(folder, tokens=100)


def test_the_drafter_is_kept_off_the_gpus_that_the_target_is_kept_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert placement(2, use=[12, 13]) == {"use_per_device": [12.0, 13.0]}
    assert placement(2) == {"reserve_per_device": [0.75, 0.75, -1.0]}
    second = placement(2, use=[0, 13])
    assert for_the_drafter(second) == {"reserve_per_device": [-1.0, 0.75, -1.0]}
    assert for_the_drafter(placement(2, [1, 2])) == {"reserve_per_device": [1.0, 2.0, -1.0]}


def test_a_folder_that_was_not_downloaded_whole_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path / "model", CONFIG_27B)
    with pytest.raises(ValueError, match=r"lacks its weights \(\*\.safetensors\)"):
        check_files(folder, tokenizer=False)
    names = [f"model-{number}-of-3.safetensors" for number in (1, 2, 3)]
    weights = {"weight_map": {f"layer.{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weights))
    (folder / names[0]).touch()
    with pytest.raises(ValueError, match="lacks 2 of its 3 weights files"):
        check_files(folder, tokenizer=False)
    for name in names:
        (folder / name).touch()
    check_files(folder, tokenizer=False)
    with pytest.raises(ValueError, match=r"lacks its tokenizer\.json"):
        check_files(folder, tokenizer=True)


def bundle(*entries: tuple[int, int]) -> bytes:
    """Images as nvcc bundles them, their contents compressed: kind (1 PTX, 2 code) and GPU."""
    body = b""
    for kind, arch in entries:
        head = struct.pack("<HHIQIIHHI", kind, 257, 64, 24, 24, 0, 0, 0, arch)
        body += head.ljust(64, b"\0") + b"\x28\xb5\x2f\xfd".ljust(24, b"\1")
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_an_extension_tells_what_it_was_built_for(tmp_path: Path) -> None:
    """Laid out as in objects of nvcc 13.0, whose compressed images never say sm_75."""
    file = tmp_path / "exllamav3_ext.so"
    file.write_bytes(
        b"\x7fELF" + bundle((2, 75)) + b"\x50\xed\x55\xba" * 3 + bundle((1, 90), (2, 90))
    )
    assert b"sm_75" not in file.read_bytes()
    held = images(file)
    assert named(held) == "compute_90, sm_75, sm_90"
    assert runs_on(held, (7, 5))
    assert runs_on(held, (12, 0))  # from the PTX
    assert not runs_on(held, (8, 6))  # neither older code of its own generation, nor PTX
    assert runs_on(frozenset({("sm", 80)}), (8, 6))
    file.write_bytes(b"sm_75, but no image")
    assert not images(file)
    assert named(images(file)) == "no GPU"
    file.write_bytes(b"")
    assert not images(file)


def test_an_extension_for_other_gpus_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "site-packages" / "exllamav3_ext.cpython-311-x86_64-linux-gnu.so"
    file.parent.mkdir()
    file.write_bytes(bundle((2, 80)))
    monkeypatch.setattr(checks, "installed_version", lambda: "1.6.5")
    monkeypatch.setattr(checks, "has_triton", lambda: True)
    monkeypatch.setattr(checks, "gpus", lambda: [T4, T4])
    monkeypatch.setattr(checks, "extension_file", lambda: file)
    said = str(checks.why_not(2))
    assert "holds code for sm_80 and Tesla T4 has compute capability 7.5" in said
    assert "TORCH_CUDA_ARCH_LIST=7.5 " in said
    assert "pip uninstall exllamav3" in said  # and not to delete site-packages
    assert "delete" not in said
    built = tmp_path / "exllamav3_ext" / "exllamav3_ext.so"
    built.parent.mkdir()
    built.write_bytes(bundle((2, 80)))
    monkeypatch.setattr(checks, "extension_file", lambda: built)
    assert f"delete the folder {built.parent}" in str(checks.why_not(2))
    monkeypatch.setattr(checks, "extension_file", lambda: file)
    file.write_bytes(bundle((2, 75)))
    assert checks.why_not(2) is None
    monkeypatch.setattr(checks, "gpus", lambda: [T4, T4 | {"capability": (8, 6)}])
    monkeypatch.setattr(checks, "extension_file", lambda: None)
    assert "TORCH_CUDA_ARCH_LIST='7.5;8.6' " in str(checks.why_not(1))


def test_looking_for_the_extension_makes_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    where = tmp_path / "torch_extensions"
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(where))
    assert checks.extension_file() is None
    assert not where.exists()
    built = where / "exllamav3_ext" / "exllamav3_ext.so"
    built.parent.mkdir(parents=True)
    built.write_bytes(bundle((2, 75)))
    assert checks.extension_file() == built
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert checks.extension_file() is None
    assert not (tmp_path / "cache").exists()
    # The same folder as torch's own.
    ours = checks._build_root() / checks.EXTENSION
    assert Path(cpp_extension._get_build_directory(checks.EXTENSION, False)) == ours


def test_verdicts_on_models(tmp_path: Path) -> None:
    def said(config: dict[str, Any], **machine: Any) -> Any:
        return judge(model(tmp_path / "m", config), **machine)

    two = {"devices": [T4, T4], "reason": None, "memory": 30e9}
    none = {"devices": [], "reason": "exllamav3 needs a CUDA GPU.", "memory": 30e9}

    quantised = said(CONFIG_27B, **two)
    assert quantised.usable
    assert quantised.how == "exl3"
    assert "linear_attention layers have one state: chains only" in "\n".join(quantised.notes)
    assert not said(CONFIG_27B, **none).usable
    assert not said(CONFIG_27B, devices=[T4], reason=None).usable

    windows = CONFIG_27B | {"full_attention_interval": None, "sliding_window": 4096}
    assert said(windows, **two).how == "observe"  # it does not say which architecture it is
    assert said(windows | {"architectures": ["GptOssForCausalLM"]}, **two).how == "observe"
    paged = said(windows | {"architectures": ["Gemma3ForCausalLM"]}, **two)
    assert (paged.usable, paged.how) == (True, "exl3")
    assert not any("one state" in note for note in paged.notes)
    busy = T4 | {"free_bytes": 0.5e9}
    full = said(CONFIG_27B, devices=[busy, busy], reason=None)
    assert "less than 1.2 GB is free on every GPU" in full.sentence
    assert not said(CONFIG_27B, devices=[T4, busy], reason=None).usable  # the head is left over
    assert any("On two T4s: Fits" in note for note in said(CONFIG_27B, **none).notes)
    assert any("lacks its weights" in note for note in said(CONFIG_27B, **none).notes)
    assert said(DENSE, devices=[busy], reason=None, memory=30e9).command.endswith('m")')
    hybrid = {k: v for k, v in CONFIG_27B.items() if k != "quantization_config"}
    assert "cannot rewind" in said(hybrid, **two).sentence
    assert not said(hybrid | {"quantization_config": {"quant_method": "awq"}}, **two).usable

    dense = said(DENSE, **two)
    assert (dense.usable, dense.how) == (True, "torch")
    assert 'device="cuda"' in dense.command
    assert any("bfloat16" in note for note in dense.notes)
    on_cpu = said(DENSE, **none)
    assert on_cpu.usable
    assert "device" not in on_cpu.command
    assert not said(DENSE, devices=[], reason="", memory=2e9).usable
    seven = DENSE | {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14_336}
    assert 'device="auto"' in said(seven, **two).command

    (tmp_path / "m" / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {"a": 0, "b": 128_000}}, "added_tokens": []})
    )
    assert any("128,001 tokens" in note for note in said(DENSE, **two).notes)
    assert any("pads the head" in note for note in said(DENSE | {"vocab_size": 32_001}).notes)
    assert all("Not verified on T4" in "\n".join(said(DENSE, **m).notes) for m in (two, none))


def test_without_torch_the_verdict_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "torch" else there(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    said = judge(model(tmp_path / "m", DENSE))
    assert (said.usable, said.sentence) == (False, "torch is not installed here.")
    assert said.command.startswith("pip install")


def test_a_verdict_is_asked_for_by_a_folder(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", DENSE)
    text = CliRunner().invoke(app, ["doctor", "--target", str(folder)])
    assert text.exit_code == 0
    assert text.output.startswith(("yes: ", "no: "))
    read = json.loads(CliRunner().invoke(app, ["doctor", "--target", str(folder), "--json"]).output)
    assert set(read) == {"usable", "how", "sentence", "command", "notes"}


def test_a_model_that_spills_onto_the_cpu_is_refused() -> None:
    _refuse_offloaded("m", {"": "cuda"})
    _refuse_offloaded("m", {"model.layers.0": 0, "model.layers.1": 1})
    _refuse_offloaded("m", {"": "cpu"})  # asked for
    with pytest.raises(ValueError, match="1 of its 2 parts"):
        _refuse_offloaded("m", {"model.layers.0": 0, "model.layers.1": "cpu"})
