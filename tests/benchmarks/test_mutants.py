"""Every planted fault fits the source: `make mutants` would otherwise find out after an hour."""

from __future__ import annotations

import pytest

from benchmarks import mutants


@pytest.mark.parametrize("kernel", sorted(mutants.KERNELS))
def test_each_planted_fault_replaces_exactly_one_piece_of_source(kernel: str) -> None:
    mutations, _ = mutants.KERNELS[kernel]

    unfit = [f"{one.file}: {one.right}" for one in mutations
             if (mutants.PACKAGE / one.file).read_text().count(one.right) != 1]  # fmt: skip
    assert unfit == []


@pytest.mark.parametrize("kernel", sorted(mutants.KERNELS))
def test_the_tests_of_a_kernel_exist(kernel: str) -> None:
    _, tests = mutants.KERNELS[kernel]

    assert [test for test in tests if not (mutants.ROOT / test).exists()] == []
