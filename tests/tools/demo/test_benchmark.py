"""tools.demo.benchmark: which columns each TPC-H query is ordered by."""

from bench import tpch
from tools.demo.benchmark import ordered_by


def test_ordered_by_finds_the_outer_order_of_every_query_that_has_one() -> None:
    texts = tpch.queries()
    assert ordered_by(texts[2]) == ("s_acctbal", "n_name", "s_name", "p_partkey")
    assert ordered_by(texts[20]) == ("s_name",)
    assert [number for number, text in texts.items() if not ordered_by(text)] == [6, 14, 17, 19]
