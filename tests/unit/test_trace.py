"""The trace: what validate() catches, what select() keeps, what damaged files say."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from specviz.analysis import entropy_by, replay
from specviz.campaign import capture
from specviz.engine.loop import generate
from specviz.policies import FixedK
from specviz.prompt_set import Prompt
from specviz.trace import Trace, TraceError, TraceMeta, load_trace
from specviz.trace.remembered import per_trace
from specviz.trace.schema import table_schemas
from specviz.trace.stored import Stored
from tests.models import toy_pair
from tests.synthetic import synthetic_trace

TABLES = list(table_schemas(1))


def made() -> Trace:
    target, drafter = toy_pair()
    prompts = [
        Prompt(f"p{i}", kind, ({"role": "user", "content": text},))
        for i, (kind, text) in enumerate([("code", "abca"), ("prose", "hgfe"), ("code", "ccdd")])
    ]
    return capture(prompts, target, drafter, max_new_tokens=16, progress=False)


TRACE = made()
META = '{{"schema_version": 1, "kind": "run", "target": {target}, "drafters": {{}}, "k": {k}}}'


def with_column(trace: Trace, table: str, column: str, values: object) -> Trace:
    tables = {name: trace.table(name) for name in TABLES}
    index = tables[table].schema.get_field_index(column)
    field = tables[table].schema.field(column)
    tables[table] = tables[table].set_column(index, field, pa.array(values, field.type))
    return Trace(trace.meta, tables)


def poked(trace: Trace, table: str, column: str, row: int, value: object) -> Trace:
    values = trace.table(table)[column].to_pylist()
    values[row] = value
    return with_column(trace, table, column, values)


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "message"),
    [
        ("sequences", "finish", 0, "tired", "finish"),
        ("sequences", "seq", 1, 0, "twice"),
        ("sequences", "n_output", 0, 0, "without output"),
        ("sequences", "n_output", 0, 17, "more output"),
        ("positions", "t", 3, 9, "0, 1, 2"),
        ("positions", "ebf", 0, 40.0, "exp"),
        ("positions", "ebf2", 0, 40.0, "ebf2"),
        ("positions", "p_max", 0, 1e-6, "p_max"),
        ("positions", "entropy", 0, float("nan"), "entropy"),
        ("positions", "rank", 0, -1, "rank"),
        ("positions", "p_max", 0, float("nan"), "p_max"),
        ("positions", "p_max", 0, 5.0, "p_max"),
        ("positions", "ebf2", 0, float("nan"), "ebf2"),
        ("positions", "n90", 0, -4, "n90"),
        ("positions", "margin", 0, -0.5, "margin"),
        ("positions", "logp", 0, 0.5, "logp"),
        ("positions", "repeated", 0, None, "missing values in 'repeated'"),
        ("sequences", "content_type", 0, None, "missing values in 'content_type'"),
        ("sequences", "prompt_id", 1, "p0", "prompt_id twice"),
        ("positions", "token_id", 5, 7, "tokens say"),
        ("drafts", "matched", 4, 16, "matched"),
        ("drafts", "drafted", 4, 16, "drafted"),
        ("drafts", "anchor", 4, 15, "anchor"),
        ("drafts", "anchor", 4, 5, "tokens say|one anchor"),
    ],
)
def test_validate_catches(table: str, column: str, row: int, value: object, message: str) -> None:
    TRACE.validate()
    with pytest.raises(ValueError, match=message):
        poked(TRACE, table, column, row, value).validate()


def test_validate_catches_a_wrong_match_by_one() -> None:
    matched = TRACE.column("drafts", "matched")
    row = int(np.flatnonzero(matched > 0)[0])
    with pytest.raises(ValueError, match="tokens say"):
        poked(TRACE, "drafts", "matched", row, int(matched[row]) - 1).validate()


def test_validate_catches_a_missing_draft() -> None:
    tables = {name: TRACE.table(name) for name in TABLES}
    for kept in (tables["drafts"].slice(1), tables["drafts"].slice(0, 0)):
        with pytest.raises(ValueError, match="exhaustive"):
            Trace(TRACE.meta, {**tables, "drafts": kept}).validate()
    with pytest.raises(ValueError, match="positions for"):
        Trace(TRACE.meta, {**tables, "positions": tables["positions"].slice(0, 0)}).validate()


@pytest.mark.parametrize(
    ("column", "row", "value", "message"),
    [
        ("emitted", 0, 1, "accepted"),
        ("accepted", 0, 9, "accepted"),
        ("stop", 0, "bored", "stop"),
        ("anchor", 1, 3, "last round ended"),
    ],
)
def test_validate_catches_wrong_rounds(column: str, row: int, value: object, message: str) -> None:
    target, drafter = toy_pair()
    trace = generate(target, drafter, "abca", max_new_tokens=30).finish().trace.validate()
    current = trace.rounds[column].iloc[row]
    assert current != value
    with pytest.raises(ValueError, match=message):
        poked(trace, "rounds", column, row, value).validate()


def test_validate_catches_rounds_that_do_not_add_up() -> None:
    target, drafter = toy_pair()
    trace = generate(target, drafter, "abca", max_new_tokens=30).finish().trace
    tables = {name: trace.table(name) for name in TABLES}
    tables["rounds"] = tables["rounds"].slice(0, tables["rounds"].num_rows - 1)
    tables["rows"] = tables["rows"].filter(
        pc.less(tables["rows"]["round"], tables["rounds"].num_rows)
    )
    with pytest.raises(ValueError, match="emit"):
        Trace(trace.meta, tables).validate()


def test_select_keeps_the_part_and_its_order() -> None:
    code = TRACE.select(content_type="code").validate()
    assert code.sequences.prompt_id.tolist() == ["p0", "p2"]
    assert set(code.drafts.seq) == {0, 2}
    assert TRACE.select(prompt_id=["p1"]).content_types == ["prose"]
    assert TRACE.select(drafter="markov").drafters == ["markov"]
    with pytest.raises(ValueError, match="code, prose"):
        TRACE.select(content_type="poetry")
    with pytest.raises(ValueError, match="markov"):
        TRACE.select(drafter="eagle")
    with pytest.raises(ValueError, match="No content_type was named"):
        TRACE.select(content_type=[])


def test_summary_counts_and_averages() -> None:
    summary = TRACE.summary().set_index("content_type")
    assert summary.prompts.to_dict() == {"code": 2, "prose": 1}
    assert summary.tokens.to_dict() == {"code": 32, "prose": 16}
    prose = TRACE.select(content_type="prose").positions
    assert summary.mean_entropy["prose"] == pytest.approx(prose.entropy.mean())
    assert summary.ebf_geometric["prose"] == pytest.approx(np.exp(prose.entropy.mean()))
    assert summary.ebf_arithmetic["prose"] == pytest.approx(np.exp(prose.entropy).mean(), rel=1e-5)
    assert len(TRACE.summary(by=None)) == 1
    assert len(TRACE.summary(by="prompt_id")) == 3
    assert len(TRACE.summary(by="seq")) == 3
    with pytest.raises(ValueError, match="mood"):
        TRACE.summary(by="mood")


def test_summary_of_a_run_names_the_live_numbers() -> None:
    target, drafter = toy_pair()
    run = generate(target, drafter, "abca", max_new_tokens=30).finish()
    row = run.trace.summary().iloc[0]
    assert row.tokens_per_round == pytest.approx(29 / len(run.log))
    assert row.draft_yield == pytest.approx(run.rounds.accepted.sum() / run.rounds.drafted.sum())


def test_frames_and_matrices_agree() -> None:
    logq = TRACE.matrix("logq", "markov")
    frame = np.stack(TRACE.drafts.logq.to_list())
    np.testing.assert_array_equal(logq, frame)
    assert logq.dtype == np.float16
    assert TRACE.matrix("top4_ids").shape == (len(TRACE.drafts), 60)
    with pytest.raises(ValueError, match="not a list column"):
        TRACE.matrix("matched")
    with pytest.raises(ValueError, match="eagle"):
        TRACE.matrix("logq", "eagle")


def test_texts_of_tokens_that_no_output_holds(tmp_path: Path) -> None:
    schema = table_schemas(1)["vocabulary"]
    emitted = TRACE.positions.iloc[0]
    named = [(0, 900_000, " never"), (1, 900_000, " never"), (1, 900_001, "<b>")]
    rows = [dict(zip(schema.names, row, strict=True)) for row in named]
    tables = {name: TRACE.table(name) for name in TABLES}
    tables["vocabulary"] = pa.Table.from_pylist(rows, schema)
    Trace(TRACE.meta, tables).save(tmp_path)
    back = load_trace(tmp_path)
    assert back.table("vocabulary")["token_id"].to_pylist() == [900_000, 900_001]
    assert back.texts[900_001] == "<b>"
    assert back.texts[emitted.token_id] == emitted.text
    assert back.select(content_type="code").texts[900_000] == " never"
    # A trace from before such texts were kept is read without them.
    (tmp_path / "vocabulary.parquet").unlink()
    assert 900_000 not in load_trace(tmp_path).texts


def test_a_missing_table_is_named() -> None:
    with pytest.raises(ValueError, match="`rounds`"):
        TRACE.require("rounds")
    with pytest.raises(KeyError, match="moods"):
        TRACE.table("moods")


def test_save_and_load_are_inverse(tmp_path: Path) -> None:
    TRACE.save(tmp_path / "t")
    back = load_trace(tmp_path / "t")
    assert back.meta == TRACE.meta
    for name in TABLES:
        assert repr(back.table(name).to_pylist()) == repr(TRACE.table(name).to_pylist())
    back.select(content_type="code").save(tmp_path / "t")  # overwritten whole
    assert len(load_trace(tmp_path / "t").sequences) == 2


@pytest.mark.parametrize("name", ["sequences", "positions", "drafts"])
def test_a_damaged_table_is_named(tmp_path: Path, name: str) -> None:
    TRACE.save(tmp_path)
    file = tmp_path / f"{name}.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(TraceError, match=f"{name}.parquet is damaged"):
        load_trace(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a specviz trace"),
        (META.format(target="null", k=15), "JSON objects"),
        (META.format(target="{}", k='"wide"'), "whole number"),
        (json.dumps({"schema_version": 99}), "schema 99"),
        (json.dumps({"schema_version": 1}), "lacks"),
        (
            json.dumps({"schema_version": 1, "kind": "run", "target": {}, "drafters": {}, "k": 1}),
            "cannot be read",
        ),
    ],
)
def test_a_damaged_description_is_explained(tmp_path: Path, text: str, message: str) -> None:
    TRACE.save(tmp_path)
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceError, match=message):
        load_trace(tmp_path)


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="not a folder"):
        load_trace(tmp_path / "nothing")
    with pytest.raises(TraceError, match="named by its folder"):
        load_trace(None)
    with pytest.raises(TraceError, match=r"no trace\.json"):
        load_trace(tmp_path)


# -- large tables -----------------------------------------------------------------------------


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved trace that counts as large."""
    monkeypatch.setattr("specviz.trace.store.LARGE", 0)
    return synthetic_trace(0, drafters=("steady", "fresh")).save(tmp_path / "trace")


def test_a_large_trace_reads_the_columns_that_are_asked_for_and_no_more(large: Path) -> None:
    trace = load_trace(large)
    by_type, summary = entropy_by(trace, draws=50), trace.summary()
    positions = trace._tables["positions"]
    assert isinstance(positions, Stored)
    assert set(positions._known) == {"seq", "entropy", "ebf", "ebf2", "p_max", "repeated"}
    at_once = synthetic_trace(0, drafters=("steady", "fresh"))
    pd.testing.assert_frame_equal(by_type, entropy_by(at_once, draws=50))
    pd.testing.assert_frame_equal(summary, at_once.summary())


def test_a_large_trace_is_the_same_trace(large: Path) -> None:
    trace, at_once = load_trace(large), synthetic_trace(0, drafters=("steady", "fresh"))
    assert np.array_equal(trace.column("positions", "entropy"), at_once.positions["entropy"])
    assert np.array_equal(trace.matrix("token", "fresh"), at_once.matrix("token", "fresh"))
    assert trace.validate() is trace
    assert replay(trace, FixedK(4), "fresh").rounds.equals(
        replay(at_once, FixedK(4), "fresh").rounds
    )
    for name in TABLES:
        found, expected = trace.table(name), at_once.table(name)
        assert found.schema == expected.schema
        pd.testing.assert_frame_equal(found.to_pandas(), expected.to_pandas())
    pd.testing.assert_frame_equal(
        trace.select(content_type="code").summary(), at_once.select(content_type="code").summary()
    )
    assert repr(trace) == repr(at_once)


def test_a_large_table_in_another_order_is_sorted_as_a_small_one_is(large: Path) -> None:
    table = pq.read_table(large / "positions.parquet")
    pq.write_table(table.take(list(range(len(table)))[::-1]), large / "positions.parquet")
    seq = load_trace(large).column("positions", "seq")
    assert (np.diff(seq) >= 0).all()


def test_a_large_file_that_is_written_anew_changes_nothing_that_was_loaded(large: Path) -> None:
    trace = load_trace(large)
    synthetic_trace(5).save(large)
    assert trace.positions.equals(synthetic_trace(0, drafters=("steady", "fresh")).positions)


def test_damage_in_a_large_table_is_said_when_it_is_met(large: Path) -> None:
    file = large / "positions.parquet"
    column = pq.ParquetFile(file).metadata.row_group(0).column(4)
    assert column.path_in_schema == "entropy"
    bytes_ = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    bytes_[start : start + 60] = b"?" * 60
    file.write_bytes(bytes_)
    trace = load_trace(large)
    with pytest.raises(ValueError, match=r"`positions` table cannot be read.*copy"):
        trace.column("positions", "entropy")
    file.write_bytes(bytes_[:-20])
    with pytest.raises(TraceError, match="damaged"):
        load_trace(large)


def test_the_description_survives_json() -> None:
    meta = dataclasses.replace(TRACE.meta, certificate={"equal": True}, lossy=True)
    assert TraceMeta.from_json(meta.to_json()) == meta
    assert meta.greedy


def test_unknown_tables_and_missing_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="moods"):
        Trace(TRACE.meta, {"moods": pa.table({"a": [1]})})
    with pytest.raises(ValueError, match="entropy"):
        Trace(TRACE.meta, {"positions": TRACE.table("positions").drop_columns(["entropy"])})


def test_it_shows_itself_without_markup_from_the_outside() -> None:
    target, drafter = toy_pair()
    target.caption = "<script>alert(1)</script>"
    trace = capture(["abc"], target, drafter, max_new_tokens=5, progress=False)
    assert "<script" not in trace._repr_html_()
    assert "&lt;script" in trace._repr_html_()
    assert "capture of toy" in repr(trace)


def test_what_is_remembered_of_a_trace_goes_with_it() -> None:
    asked: list[int] = []

    @per_trace
    def counted(trace: Trace, k: int) -> int:
        asked.append(k)
        return len(trace.sequences) + k

    trace = synthetic_trace(0)
    assert counted(trace, 1) == counted(trace, 1) == counted(trace, 2) - 1
    assert asked == [1, 2]
    assert counted(synthetic_trace(0), 1) == counted(trace, 1)
    assert asked == [1, 2, 1]
    alive = weakref.ref(trace)
    del trace
    gc.collect()
    assert alive() is None
