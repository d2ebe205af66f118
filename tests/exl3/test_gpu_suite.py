"""The GPU tests' own lines on the stand-ins: on a GPU they should meet no slip of their own."""

from __future__ import annotations

from typing import Any

import pytest

from specviz.prompt_set import Prompt
from tests.exl3.conftest import PROMPT, Workshop
from tests.gpu import test_exl3 as suite
from tests.gpu import test_exl3_cache as cache_suite

pytestmark = [pytest.mark.exl3, pytest.mark.slow]


@pytest.fixture(params=[("hybrid", "mtp"), ("llama", "dflash2")], ids=lambda pair: pair[0])
def pair(
    request: pytest.FixtureRequest, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> Any:
    def few(**asked: Any) -> list[Prompt]:
        first, second = (Prompt(f"p{i}", "code", PROMPT * i) for i in (1, 2))
        return [first, second][: asked["limit"]]

    monkeypatch.setattr(suite, "prompts", few)
    monkeypatch.setattr(cache_suite, "prompts", few)
    return workshop.load(*request.param)


def test_every_line_of_the_gpu_tests_runs(pair: Any) -> None:
    note: dict[str, Any] = {}
    suite.test_layers_are_split_over_the_devices(pair, note)
    suite.test_final_states_of_both_devices_give_the_logits(pair, note)
    for kept in range(6):
        suite.test_rewind_is_prefill(pair, kept, note)
    suite.test_a_verification_can_be_undone(pair, note)
    for drafted in (12, 13, 14, 15):
        suite.test_a_long_verification_can_be_undone(pair, drafted, note)
    suite.test_planted_drafts_keep_the_output(pair, note)
    suite.test_the_generators_counts(pair, note)
    suite.test_the_generator_is_watched_with_sampling(pair, note)
    suite.test_a_run_with_the_drafter(pair, "code", note)
    cache_suite.test_rewind_is_prefill(pair[0], note)
    assert note["devices"] == "cpu"
    assert note["outside"] == 0
    assert note["tokens_per_second"] > 0
