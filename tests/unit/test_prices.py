"""Prices as a person gives them: for one cluster, for those without one, for machines that were bought."""

from __future__ import annotations

import pytest

import paceline
from paceline.cli.options import prices_of
from simulator.base.errors import InputError, PriceWarning
from simulator.base.text import format_hourly, format_usd
from simulator.results.misread import left_out
from simulator.spec.paying import Price
from simulator.spec.prices import Prices, parse_prices, price_of_text

SHORT = {"run.steps": 5, "run.replications": 2}


def test_an_hour_of_a_bought_machine_is_its_share_of_the_purchase_and_its_electricity() -> None:
    plain = price_of_text("BUY:4000USD,years:4,power:0.5kW")
    assert plain.usd_per_node_hour == pytest.approx(4000 / (4 * 8766) + 0.5 * 0.15, rel=1e-12)
    assert "in use at all hours (assumed)" in plain.terms
    assert "0.5 kW at 0.15 USD/kWh (assumed)" in plain.terms
    assert "4,000 USD / (4 years x 8,766 h x 1) + 0.5 kW x 0.15 USD/kWh" in plain.source
    full = price_of_text("BUY:3000USD, years:3, power:400 W, electricity:0.30USD/kWh, use:0.6")
    assert full.usd_per_node_hour == pytest.approx(3000 / (3 * 8766 * 0.6) + 0.4 * 0.30, rel=1e-12)
    assert "assumed" not in full.terms
    assert "electricity not counted" in price_of_text("BUY:4000USD,years:4").terms


def test_a_price_carries_the_sum_of_a_purchase_and_one_of_rent_is_written_as_before() -> None:
    bought = price_of_text("BUY:4000USD,years:4,use:1")
    assert bought.purchase_usd == 4000.0
    assert "4,000 USD over 4 years" in bought.terms
    assert "electricity not counted" in bought.terms
    assert Price.model_validate(bought.model_dump(mode="json")) == bought
    assert "purchase_usd" not in price_of_text("0.40/h").model_dump(mode="json")


@pytest.mark.parametrize(("text", "hourly"), [("0.20/h", 0.2), ("0.2USD/h", 0.2), ("$4.8/d", 0.2), ("0.2 USD per hour", 0.2), ("0/h", 0.0)])
def test_an_hourly_price_carries_its_unit(text: str, hourly: float) -> None:
    assert price_of_text(text).usd_per_node_hour == pytest.approx(hourly, rel=1e-12)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["0.2"], "'0.2'"),
        (["a=-1/h"], "-1/h"),
        (["a=0.2/kg"], "0.2/kg"),
        (["a=BUY:4000USD"], "such as years:4"),
        (["a=BUY:4000EUR,years:4"], "buy '4000EUR'"),
        (["a=BUY:4.000USD,years:4"], "buy '4.000USD' may be 4 or 4,000"),
        (["a=1,20/h"], "no separator of thousands"),
        (["a=BUY:4000USD,year:4"], "did you mean years:"),
        (["a=BUY:4000USD,years:4,use:1.5"], "use '1.5'"),
        (["a=BUY:4000USD,years:4,power:5"], "power: '5'"),
        (["a=BUY:4000USD,years:4,power:5 GB"], "power: '5 GB'"),
        (["a=BUY:4000USD,years:4,electricity:0.3USD/kWh"], "power is missing"),
        (["a=BUY:4000USD,years:4,years:5"], "years is given twice"),
        (["a=1/h", "a=2/h"], "a is given twice"),
        (["1/h", "2/h"], "given twice"),
        (["=1/h"], "before '='"),
    ],
)
def test_a_price_that_cannot_be_read_is_one_line_with_what_to_try(texts: list[str], told: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_prices(prices_of(texts))
    assert told in str(refused.value)
    assert str(refused.value).startswith(("`prices=", "--price "))
    assert "\n" not in str(refused.value)


def test_a_price_is_for_the_cluster_of_its_name_and_near_names_are_told() -> None:
    own = paceline.load("ring", SHORT, prices={"ethernet-25g": "0.20/h"})
    assert own.cluster.price is not None
    assert (own.cluster.price.usd_per_node_hour, own.cluster.price.source) == (0.2, "given by the user")
    with pytest.raises(InputError, match=r"`prices` 'ethernet-2g': .*did you mean ethernet-25g"):
        paceline.load("ring", SHORT, prices={"ethernet-2g": "0.20/h"})


def test_one_price_for_all_is_refused_where_it_would_be_used_for_none() -> None:
    on = {**SHORT, "cluster.use": "p3.2xlarge"}
    with pytest.raises(InputError, match=r"prices=\{'p3\.2xlarge': '0\.20/h'\}"):
        paceline.load("ring", on, prices="0.20/h")
    named = paceline.load("ring", on, prices={"p3.2xlarge": 0.2}).cluster.price
    assert named is not None
    assert named.usd_per_node_hour == 0.2
    # of one cluster a setting is that cluster's price, as it always was
    alone = paceline.load("ring", {**on, "cluster.price.usd_per_node_hour": 0.2}).cluster.price
    assert alone is not None
    assert alone.usd_per_node_hour == 0.2


@pytest.mark.parametrize("how", ["settings", "prices"])
def test_one_price_in_a_sweep_over_clusters_fills_only_those_without(how: str) -> None:
    over = {"cluster.use": ["ethernet-1g", "p3.2xlarge"]}
    given = {"settings": {**SHORT, "cluster.price.usd_per_node_hour": 0.2}} if how == "settings" else {"settings": SHORT, "prices": "0.2/h"}
    swept = paceline.sweep("ring", {**over, "strategy.workers": [1]}, jobs=1, **given)  # type: ignore[arg-type]
    prices = {its.scenario.cluster.name: its.scenario.cluster.price for its in swept}
    assert {name: price.usd_per_node_hour for name, price in prices.items()} == {"ethernet-1g": 0.2, "p3.2xlarge": 3.06}
    assert "given by the user" in prices["ethernet-1g"].source


def test_a_long_price_that_is_refused_is_cut_within_its_quotes() -> None:
    with pytest.raises(InputError) as refusal:
        parse_prices({"ethernet-1g": "BUY:4000USD,years:4,power:0.5kW,use:0.6,use:0.6,electricity:0.30"})
    assert str(refusal.value).startswith(
        "`prices={'ethernet-1g': 'BUY:4000USD,years:4,power:0.5kW,use:0.6,use:0.6,electricity:...'}`: use is given twice"
    )


def test_notes_say_for_which_clusters_a_price_was_used() -> None:
    prices = parse_prices({"a": "0.3/h", "*": "0.2/h"})
    for name, own in (("a", 1.0), ("b", 2.0), ("c", None), ("d", None)):
        table = {"name": name} | ({} if own is None else {"price": {"usd_per_node_hour": own}})
        prices.applied(table)
    with pytest.warns(PriceWarning) as warned:
        prices.check()
    assert [str(warning.message) for warning in warned] == prices.notes()
    named, rest = prices.notes()
    assert all(part in named for part in ("node of a ", "$0.30", "$1.00"))
    assert all(part in rest for part in ("$0.20", "c and d", "b keeps its own"))
    assert Prices().notes() == []


def test_a_cluster_without_a_name_is_called_what_results_call_it() -> None:
    for given, told in (
        ({"*": "BUY:4000USD,years:4"}, "own cluster: bought for"),
        ({"own cluster": "BUY:1USD,years:4"}, "a node of own"),
    ):
        prices = parse_prices(given)
        assert "price" in prices.applied({"inter_node": {"bandwidth": "1 GB/s"}})
        with pytest.warns(PriceWarning, match=told):
            prices.check()


@pytest.mark.slow
def test_the_library_is_told_of_its_own_argument() -> None:
    ours = "prices={'p3.2xlarge': '0.20/h'}"
    with pytest.raises(InputError) as refused:
        paceline.load("ring", {**SHORT, "cluster.use": "p3.2xlarge"}, prices="0.20/h")
    assert ours in str(refused.value)
    with pytest.raises(InputError) as refused:
        paceline.plan("ring", samples=1e6, budget="5 USD", workers=[1], settings=SHORT, confidence=0.5, jobs=1)
    assert "`prices={'ethernet-25g': '0.40/h'}`, or 'BUY:" in str(refused.value)
    clusters = ["ethernet-1g", "ethernet-25g"]
    found = paceline.plan(
        "ring",
        samples=1e6,
        budget="500 USD",
        workers=[1, 2],
        settings=SHORT,
        confidence=0.5,
        jobs=1,
        clusters=clusters,
        prices={"ethernet-1g": 1.0},
    )
    text = next(its.text for its in found.clusters if its.cluster == "ethernet-25g")
    assert "price is unknown" in text
    assert not any("prices=" in text or "--" in text for text in (*found.notes, *(its.text for its in found.clusters)))


def test_what_is_left_out_follows_from_the_scenario() -> None:
    names = [each.name for each in left_out(paceline.load("ring"))]
    assert names == ["preparing input", "whether a batch fits into memory", "start-up, evaluation and checkpoints", "failures of nodes"]
    fed = paceline.load("ring", {"workload.input": {"base": "1 ms", "per_sample": "0 s"}}, prices={"ethernet-25g": "0.2/h"})
    names = [each.name for each in left_out(fed)]
    assert "preparing input" not in names
    assert "storage and transfer of data" in names
    spot = paceline.load("ring", {"cluster.price": {"usd_per_node_hour": 1.0, "terms": "Spot"}})
    assert any("spot price" in each.text for each in left_out(spot))
    assert not any(each.text.startswith("none") for each in left_out(spot)), "at the beginning of a sentence it would look like Python's"


def test_prices_and_sums_keep_the_digits_that_a_reader_multiplies() -> None:
    assert [format_hourly(usd) for usd in (0, 0.2, 0.526, 21.957642, 0.189077, 1234.5)] == [
        "$0.00", "$0.20", "$0.526", "$21.958", "$0.18908", "$1,234.50"
    ]  # fmt: skip
    assert [format_usd(usd) for usd in (3.0302, 40.83, 103.52, 1234.5, 123456, 0.052)] == [
        "$3.03", "$40.83", "$103.52", "$1,235", "$123,456", "$0.052"
    ]  # fmt: skip
