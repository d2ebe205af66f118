"""The public figures that come with specviz: what they are, and that verdicts follow from them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specviz._data_files import data_file
from specviz.analysis.audits.claims import (
    COLUMNS,
    FIGURES,
    audit_claims,
    audit_groups,
    claim_audits,
    read_claims,
)
from specviz.figures.claims import plot_claims

#: Every other claim is consistent or says too little.
INCONSISTENT = {"t4-code", "t4-four-times"}


@pytest.fixture(scope="module")
def claims() -> pd.DataFrame:
    return read_claims()


@pytest.fixture(scope="module")
def audited(claims: pd.DataFrame) -> pd.DataFrame:
    return audit_claims(claims)


def test_there_are_many_from_many_sources(claims: pd.DataFrame) -> None:
    assert len(claims) >= 40
    assert claims["source"].nunique() >= 12
    assert list(claims.columns) == list(COLUMNS)
    assert (claims[["id", "source", "evidence", "system", "setting"]] != "").all(axis=None)
    # Only the report that specviz starts from has no address.
    assert set(claims.loc[claims["reference"] == "", "source"]) == {"public report on 2x T4"}
    assert set(claims["evidence"]) == {"report", "read", "thread", "abstract", "second-hand"}


def test_the_definition_names_a_figure_that_is_there(claims: pd.DataFrame) -> None:
    for row in claims.to_dict("records"):
        assert row["definition"] in (*FIGURES, "survival"), row["id"]
        given = row[row["definition"]] or (
            row["definition"] == "speedup" and row["tokens_per_second"]
        )
        assert given, row["id"]


def test_no_verdict_is_stored() -> None:
    text = data_file("claims.csv").read_text(encoding="utf-8")
    assert "verdict" not in text
    assert "consistent" not in text
    assert "acceptance" + " rate" not in text.lower()


def test_verdicts_of_the_file(audited: pd.DataFrame) -> None:
    assert set(audited.loc[audited["verdict"] == "inconsistent", "id"]) == INCONSISTENT
    few = audited[audited["verdict"] == "not enough said"]
    assert (few["checked"] == "").all()
    assert 0 < len(few) < len(audited) / 4
    assert (audited["reason"] != "").all()


def _half(text: str) -> float:
    return float(Decimal(1).scaleb(int(Decimal(text).as_tuple().exponent)) / 2)


def test_verdicts_recompute_from_the_figures(claims: pd.DataFrame, audited: pd.DataFrame) -> None:
    """1 <= tau <= k + 1 and speed-up <= tau, written out again, with rounding."""
    verdicts = audited.set_index("id")["verdict"]
    seen = 0
    for row in claims.to_dict("records"):
        tokens, k, speedup = row["tokens_per_round"], row["k"], row["speedup"]
        if row["bonus_counted"] != "yes" or not tokens or not (k or speedup):
            continue
        if row["tokens_per_second"]:
            fast = float(row["tokens_per_second"].split("-")[0])
            slow = row["baseline_tokens_per_second"]
            least = fast / float(slow.split("-")[-1]) if slow else 0.0
        else:
            least = float(speedup) - _half(speedup) if speedup else 0.0
        low, high = float(tokens) - _half(tokens), float(tokens) + _half(tokens)
        fine = high >= max(1.0, least) and (not k or low <= int(k) + 1)
        assert verdicts[row["id"]] == ("consistent" if fine else "inconsistent"), row["id"]
        seen += 1
    assert seen > 70


@pytest.mark.parametrize(
    ("id_", "alpha"),
    [
        ("dflash-t0-dflash-16-gsm8k", 0.861),
        ("dflash-t0-dflash-16-math-500", 0.894),
        ("dflash-t0-dflash-16-humaneval", 0.860),
        ("dflash-t0-dflash-16-mt-bench", 0.768),
        ("dflash-t1-dflash-16-mt-bench", 0.739),
    ],
)
def test_match_implied_by_the_dflash_table(audited: pd.DataFrame, id_: str, alpha: float) -> None:
    """F2.2 inverted at k = 15 for the second published table."""
    found = audited.set_index("id").loc[id_]
    assert found["k"] == 15
    assert found["token_match"] == pytest.approx(alpha, abs=5e-4)


def test_averages_of_that_table_are_two_kinds_of_mean(claims: pd.DataFrame) -> None:
    """Tokens per round are averaged by the mean, speed-ups by the geometric mean.

    For DFlash the plain mean of the speed-ups would be 4.99 and 4.12, where 4.86 and 4.03 stand.
    """
    table = claims[claims["source"] == "DFlash, Table 1"]
    for system, part in table.groupby("system"):
        mean = part["setting"] == "average"
        tokens, speed = (part[c].astype(float) for c in ("tokens_per_round", "speedup"))
        assert tokens[~mean].mean() == pytest.approx(tokens[mean].iloc[0], abs=0.0101)
        geometric = np.exp(np.log(speed[~mean]).mean())
        assert geometric == pytest.approx(speed[mean].iloc[0], abs=0.0101)
        if " DFlash" in system:
            assert speed[~mean].mean() > speed[mean].iloc[0] + 0.08


def test_more_tokens_are_not_more_speed(claims: pd.DataFrame) -> None:
    """Spec-Bench: ranking by tokens per round is not ranking by speed-up."""
    table = claims[claims["id"].str.startswith("specbench-a100")]
    by_tokens, by_speed = (
        table.assign(value=table[c].astype(float)).sort_values("value")["id"].tolist()
        for c in ("tokens_per_round", "speedup")
    )
    assert by_tokens[-1] == by_speed[-1] == "specbench-a100-eagle-2"
    assert by_tokens != by_speed


def test_what_the_figures_must_count(audited: pd.DataFrame) -> None:
    bonus = audited.set_index("id")["bonus_counted"]
    assert bonus["mistralrs-code"] == "yes"  # the source says accepted, and k is 7
    assert bonus["t4-code"] == "yes"
    assert bonus["xllm-run"] == "either"
    assert bonus["ai-server-creative"] == ""


def test_one_cost_model_per_group() -> None:
    groups = audit_groups().set_index("group")
    assert not groups.loc["T4 report", "one_cost_model"]
    assert groups.loc["T4 report", "factor"] == pytest.approx(1.364, abs=5e-4)
    assert groups.loc["mistral.rs GB10", "consistent"]
    # Long outputs agree to a few percent; MT-Bench needs dearer rounds in both papers.
    eagle = groups.index.str.contains("EAGLE")
    assert groups.loc[eagle, "one_cost_model"].all()
    apart = groups[~groups["one_cost_model"]]
    assert len(apart) == 5
    others = apart.drop(index="T4 report")
    assert others["reason"].str.contains("mt-bench implies rounds").all()
    assert (others["factor"] < 1.3).all()


def test_without_mt_bench_the_same_tables_fit_one_cost_model(claims: pd.DataFrame) -> None:
    rest = claims[(claims["setting"] != "MT-Bench") & (claims["group"] != "T4 report")]
    assert audit_groups(rest)["one_cost_model"].all()


def test_another_figure_gives_another_verdict(claims: pd.DataFrame) -> None:
    changed = claims.copy()
    changed.loc[changed["id"] == "t4-code", "tokens_per_second"] = "106"
    changed.loc[changed["id"] == "t4-prose", "tokens_per_second"] = "54"
    verdicts = audit_claims(changed).set_index("id")["verdict"]
    assert verdicts["t4-code"] == "consistent"
    assert verdicts["t4-prose"] == "inconsistent"  # 54 / 19 is above 2.55


def test_digits_are_kept(claims: pd.DataFrame) -> None:
    audits = claim_audits(claims)
    assert audits["dflash-t0-dflash-16-humaneval"].said["tokens_per_round"] == Decimal("6.50")
    assert audits["t4-prose"].said["tokens_per_second"] == (35.0, 37.0)
    assert audits["mistralrs-code"].said["round_seconds"] == (0.131, 0.153)
    assert audits["exl3-5090-whole"].said["plain_seconds"] == Decimal("0.01476")


# -- files of one's own -----------------------------------------------------------------------


def _one(tmp_path: Path, **cells: str) -> Path:
    row = dict.fromkeys(COLUMNS, "") | {"id": "mine", "bonus_counted": "unknown"} | cells
    path = tmp_path / "mine.csv"
    pd.DataFrame([row]).to_csv(path, index=False)
    return path


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = _one(tmp_path, tokens_per_round="2.5", k="7", speedup="1.9-2.1", setting="<b>")
    found = audit_claims(read_claims(path))
    assert found["verdict"].tolist() == ["consistent"]
    assert found["step_low"][0] == pytest.approx(2.5 / 2.1)
    with pytest.raises(ValueError, match="No claim names a group"):
        audit_groups(read_claims(path))


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ({}, "Claim 'mine': There is nothing to audit"),
        ({"speedup": "fast"}, "Claim 'mine': speedup is a number such as 7.4"),
        ({"speedup": "3-2"}, "higher end first"),
        ({"speedup": "-2"}, "0 or more"),
        ({"speedup": "nan"}, "0 or more"),
        ({"speedup": "2", "k": "7.5"}, "k is a whole number"),
        ({"speedup": "2", "bonus_counted": "maybe"}, "yes, no or unknown"),
        ({"survival": "0.8 x"}, "survival is a number"),
        ({"id": "", "speedup": "2"}, "an id of its own"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, cells: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_claims(_one(tmp_path, **cells))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "short.csv"
    path.write_text("id,source\na,b\n")
    with pytest.raises(ValueError, match="no column 'reference'"):
        read_claims(path)
    with pytest.raises(FileNotFoundError):
        read_claims(tmp_path / "none.csv")


# -- the picture ------------------------------------------------------------------------------


def test_the_picture_has_a_point_per_claim_with_both_numbers(audited: pd.DataFrame) -> None:
    figure = plot_claims(audited)
    both = audited.dropna(subset=["tokens_per_round", "speedup"])
    drawn = {x for trace in figure.data[2:] for x in zip(trace.x, trace.y, strict=True)}
    assert drawn == set(zip(both["tokens_per_round"], both["speedup"], strict=True))
    above = [(x, y) for x, y in drawn if y > x]
    assert above == [(7.4, pytest.approx(154 / 18 / 2 + 154 / 19 / 2))]
    assert "1 of" in figure.layout.title.text
    assert "t4-code" in figure.layout.title.text


def test_the_picture_escapes_and_refuses(audited: pd.DataFrame) -> None:
    hostile = audited.assign(source="<script>x</script>", setting="<b>")
    assert "<script>" not in str(plot_claims(hostile).to_dict())
    with pytest.raises(ValueError, match="no column 'speedup'"):
        plot_claims(audited.drop(columns="speedup"))
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_claims(audited.assign(speedup=np.nan))
