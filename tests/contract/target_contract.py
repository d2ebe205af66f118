"""What every target must do, whatever it runs on.

Subclass `TargetContract`, give `make()`, and pytest runs the whole suite on it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specviz.engine.certificate import plain_decode
from specviz.engine.protocols import FINAL, Draft, Target


class TargetContract:
    """Tolerance is the largest difference of a logit between two batch shapes."""

    tolerance = 1e-9
    taps: tuple[int, ...] = (FINAL,)

    @classmethod
    def make(cls) -> Target:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        return cls.make()

    @pytest.fixture(scope="class")
    @classmethod
    def text(cls, target: Target) -> list[int]:
        rng = np.random.default_rng(7)
        return rng.integers(0, target.vocab_size, 24).tolist()

    def after(self, target: Target, text: list[int]) -> torch.Tensor:
        """The row after `text`, from a prefill of nothing but it."""
        return target.prefill(text).logits[-1].double()

    def close(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        both = torch.isinf(left) & (left == right)
        return bool(((left - right).abs() <= self.tolerance)[~both].all())

    def test_is_a_target(self, target: Target) -> None:
        assert isinstance(target, Target)
        assert target.caption
        assert target.vocab_size > 0

    def test_prefill_gives_one_row(self, target: Target, text: list[int]) -> None:
        rows = target.prefill(text)
        assert tuple(rows.logits.shape) == (1, target.vocab_size)

    def test_a_chain_row_is_the_row_of_its_text(self, target: Target, text: list[int]) -> None:
        target.prefill(text[:10])
        rows = target.verify(Draft.chain(text[10], text[11:16])).logits.double()
        assert len(rows) == 6
        for i in range(6):
            assert self.close(rows[i], self.after(target, text[: 11 + i]))

    def test_an_empty_draft_is_a_plain_step(self, target: Target, text: list[int]) -> None:
        target.prefill(text[:10])
        rows = target.verify(Draft(text[10])).logits
        assert len(rows) == 1
        assert self.close(rows[0].double(), self.after(target, text[:11]))

    @pytest.mark.parametrize("kept", range(6))
    def test_rewind_to_every_accepted_length(
        self, target: Target, text: list[int], kept: int
    ) -> None:
        target.prefill(text[:10])
        target.verify(Draft.chain(text[10], text[11:16]))
        target.commit(range(kept))
        committed = text[: 11 + kept]
        other = (text[20] + 1) % target.vocab_size
        row = target.verify(Draft(other)).logits[0].double()
        target.commit(())
        again = target.verify(Draft(text[21])).logits[0].double()
        assert self.close(row, self.after(target, [*committed, other]))
        assert self.close(again, self.after(target, [*committed, other, text[21]]))

    def test_verify_may_be_asked_again(self, target: Target, text: list[int]) -> None:
        target.prefill(text[:10])
        target.verify(Draft.chain(text[10], text[16:20]))  # as if interrupted: never committed
        rows = target.verify(Draft.chain(text[10], text[11:13])).logits.double()
        target.commit((0, 1))
        after = target.verify(Draft(text[13])).logits[0].double()
        assert self.close(rows[2], self.after(target, text[:13]))
        assert self.close(after, self.after(target, text[:14]))

    def test_tree_rows_are_the_rows_of_their_paths(self, target: Target, text: list[int]) -> None:
        tree = Draft(text[10], tuple(text[11:17]), (-1, 0, -1, 2, 2, 1), (0.0,) * 6)
        target.prefill(text[:10])
        if not target.supports_trees:
            with pytest.raises(ValueError, match="chain"):
                target.verify(tree)
            return
        rows = target.verify(tree).logits.double()
        paths = {0: [0], 1: [0, 1], 2: [2], 3: [2, 3], 4: [2, 4], 5: [0, 1, 5]}
        for node, path in paths.items():
            alone = [*text[:11], *(tree.tokens[i] for i in path)]
            assert self.close(rows[node + 1], self.after(target, alone))

    def test_commit_of_a_tree_path(self, target: Target, text: list[int]) -> None:
        if not target.supports_trees:
            pytest.skip("chains only")
        tree = Draft(text[10], tuple(text[11:17]), (-1, 0, -1, 2, 2, 1), (0.0,) * 6)
        target.prefill(text[:10])
        target.verify(tree)
        target.commit((2, 4))
        row = target.verify(Draft(text[20])).logits[0].double()
        alone = [*text[:11], tree.tokens[2], tree.tokens[4], text[20]]
        assert self.close(row, self.after(target, alone))

    def test_memory_grows_with_the_rows_of_a_verification(
        self, target: Target, text: list[int]
    ) -> None:
        target.prefill(text[:10])
        before = target.memory()
        if not before:
            pytest.skip("its memory is not known")
        target.verify(Draft.chain(text[10], text[11:15]))
        target.commit((0,))
        used = target.memory()
        assert (before["peak_slots"], used["peak_slots"]) == (10, 15)  # rejected rows count
        slot = before["peak_cache_bytes"] / before["peak_slots"]
        assert slot > 0
        assert used["peak_cache_bytes"] == 15 * slot
        target.prefill(text[:10])
        assert target.memory() == before

    def test_commit_refuses_what_is_no_path(self, target: Target, text: list[int]) -> None:
        target.prefill(text[:10])
        target.verify(Draft.chain(text[10], text[11:14]))
        with pytest.raises(ValueError, match="path"):
            target.commit((1,))
        target.commit((0,))
        with pytest.raises(RuntimeError, match="verify"):
            target.commit(())

    def test_counts_verifications_and_sessions(self, target: Target, text: list[int]) -> None:
        target.prefill(text[:10])
        session = target.session
        assert target.verifies == 0
        target.verify(Draft(text[10]))
        target.commit(())
        target.verify(Draft(text[11]))
        assert (target.verifies, target.session) == (2, session)
        target.prefill(text[:5])
        assert (target.verifies, target.session) == (0, session + 1)

    def test_taps_follow_the_rows(self, target: Target, text: list[int]) -> None:
        rows = target.prefill(text[:10], self.taps)
        assert set(rows.taps) == set(self.taps)
        assert all(len(states) == 10 for states in rows.taps.values())
        verified = target.verify(Draft.chain(text[10], text[11:14]))
        assert all(len(states) == 4 for states in verified.taps.values())

    def test_unembedding_the_final_state_gives_the_logits(
        self, target: Target, text: list[int]
    ) -> None:
        target.prefill(text[:10], (FINAL,))
        rows = target.verify(Draft.chain(text[10], text[11:14]))
        assert self.close(target.unembed(rows.taps[FINAL]).double(), rows.logits.double())

    @pytest.mark.parametrize("bad", [[], [-1], [10**9]])
    def test_refuses_tokens_outside_the_vocabulary(self, target: Target, bad: list[int]) -> None:
        with pytest.raises(ValueError, match=r"prompt|vocabulary"):
            target.prefill(bad)

    def test_usable_after_a_refusal(self, target: Target, text: list[int]) -> None:
        with pytest.raises(ValueError, match="vocabulary"):
            target.prefill([target.vocab_size])
        before = plain_decode(target, text[:8], 6)
        assert plain_decode(target, text[:8], 6) == before
