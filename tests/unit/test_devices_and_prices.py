"""Devices, machines and their prices: each file loads, each figure names its source, and the figures agree with one another."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest
from support.scenarios import scenario_table

from simulator.base import catalog
from simulator.base.errors import ScenarioError
from simulator.catalogue.loading import apply_settings, load_cluster, scenario_from_table
from simulator.spec.accelerator import Accelerator, accelerator_named, load_accelerator

MODELS = Path(__file__).parents[2] / "models"
DEVICES = {file.stem: load_accelerator(file) for file in sorted((MODELS / "devices").glob("*.toml"))}
CLUSTERS = {file.stem: load_cluster(file) for file in sorted((MODELS / "clusters").glob("*.toml"))}
PRICED = {name: cluster for name, cluster in CLUSTERS.items() if cluster.price}

UNKNOWN = {"Ascend 910", "Pascal, model not stated", "Tesla P100, link not stated", "Xeon Gold 5117 or EPYC 7551P"}
"""Devices of published tables that no datasheet stands for: not stated which, several, or without a sourced bandwidth."""
YEAR = re.compile(r"\b20\d\d\b")
HOSTS = re.compile(r"pypi|pythonhosted|npmjs|docker\.io|ghcr\.io|gcr\.io|quay\.io|nvcr\.io|anaconda\.org|proxy\.golang|crates\.io|://")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The device folder of a user's working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models" / "devices"
    folder.mkdir(parents=True)
    return folder


TOML = """\
name = "Own Card"
aliases = ["Own Card Rev. B"]
generation = "Ours"
year = 2025
memory = "8 GB"
memory_bandwidth = "100 GB/s"
peak_flops_per_s = {float32 = 1e12}
provenance = {memory = "us, 2025", memory_bandwidth = "us, 2025", "peak_flops_per_s.float32" = "us, 2025"}
"""


# --- sources ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(DEVICES))
def test_every_figure_of_a_device_has_a_dated_source(name):
    device = DEVICES[name]
    assert set(device.provenance) == set(device.figures)
    assert len(device.figures) >= 2
    for figure, source in device.provenance.items():
        assert YEAR.search(source), f"{figure}: {source}"


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_every_machine_says_where_its_links_come_from(name):
    cluster = CLUSTERS[name]
    assert cluster.name == name
    if cluster.basis == "assumed":
        assert "assumed" in cluster.provenance["source"]
        return
    assert {"inter_node", "intra_node", "latency"} <= set(cluster.provenance)
    assert cluster.host_link is None or "host_link" in cluster.provenance
    for fact, source in cluster.provenance.items():
        assert YEAR.search(source) or "assumed" in source, f"{fact}: {source}"


@pytest.mark.parametrize("name", sorted(PRICED))
def test_every_price_has_terms_source_and_date(name):
    for price in (PRICED[name].price, PRICED[name].server_price):
        if price is None:
            continue  # a server is an equal node
        assert re.search(r"Linux, [a-z]+-?[a-z]+", price.terms)
        assert re.search(r" at [0-9a-f]{8}\b", price.source), "a source that one can open again"
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", price.date)


def test_a_machine_without_a_sourced_price_has_none():
    assert CLUSTERS["dgx-1-v100"].price is None
    assert CLUSTERS["ethernet-25g"].price is None


def test_no_file_names_a_registry_or_an_address():
    for file in MODELS.glob("*/*.toml"):
        if file.parent.name in ("devices", "clusters"):
            assert not HOSTS.search(file.read_text()), file


# --- what is covered --------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(name for name, cluster in CLUSTERS.items() if cluster.device))
def test_a_machines_device_is_known_or_unknown_on_purpose(name):
    device = CLUSTERS[name].device
    assert (accelerator_named(device) is None) == (device in UNKNOWN)


def test_at_least_twelve_machines_of_every_generation_have_a_price():
    assert len(PRICED) >= 12
    devices = {accelerator_named(cluster.device).name for cluster in PRICED.values()}
    for part in ("K80", "P100", "V100", "T4", "A100", "H100", "H200", "Xeon"):
        assert any(part in device for device in devices), part


def test_every_rate_of_network_is_there():
    def gbits(cluster):
        return round(cluster.inter_node.bandwidth_bytes_per_s * 8 / 1e9)

    ethernet = {gbits(cluster) for cluster in CLUSTERS.values() if "Ethernet" in cluster.description}
    assert {1, 10, 25, 100} <= ethernet
    infiniband = {gbits(cluster) for cluster in CLUSTERS.values() if "InfiniBand" in cluster.description}
    assert {100, 200, 400} <= infiniband


# --- figures that must agree ------------------------------------------------------------

LANES = {  # float32 lanes and the clock in MHz that the maker reckons its peak with
    "k80": (2496, 875),
    "gtx-980": (2048, 1126),
    "p100-sxm2": (3584, 1480),
    "p100-pcie": (3584, 1303),
    "v100-sxm2-16gb": (5120, 1530),
    "v100-sxm2-32gb": (5120, 1530),
    "v100-sxm3-32gb": (5120, 1530),
    "v100-pcie-16gb": (5120, 1370),
    "v100-pcie-32gb": (5120, 1370),
    "t4": (2560, 1590),
    "rtx-2080-ti": (4352, 1545),
    "rtx-4090": (16384, 2520),
    "a100-sxm4-40gb": (6912, 1410),
    "a100-sxm4-80gb": (6912, 1410),
    "a100-pcie-40gb": (6912, 1410),
    "a100-pcie-80gb": (6912, 1410),
    "h100-sxm5-80gb": (16896, 1980),
    "h200-sxm5-141gb": (16896, 1980),
    "b200-sxm-180gb": (18944, 1965),
    "gb200-186gb": (19456, 2062),
    "rtx-a6000": (10752, 1800),
}
BUS = {  # width of the memory bus in bits, and Gbit/s a pin
    "k80": (384, 5.0),
    "gtx-980": (256, 7.0),
    "p100-sxm2": (4096, 1.43),
    "p100-pcie": (4096, 1.43),
    "v100-sxm2-16gb": (4096, 1.752),
    "v100-pcie-32gb": (4096, 1.752),
    "t4": (256, 10.0),
    "rtx-2080-ti": (352, 14.0),
    "rtx-4090": (384, 21.0),
    "a100-sxm4-40gb": (5120, 2.43),
    "a100-sxm4-80gb": (5120, 3.186),
    "h100-sxm5-80gb": (5120, 5.2),
    "gb200-186gb": (8192, 7.8),
    "rtx-a6000": (384, 16.0),
}


def test_peaks_are_lanes_times_clock():
    assert set(LANES) == {name for name, device in DEVICES.items() if device.cores is None}
    for name, (lanes, mhz) in LANES.items():
        assert DEVICES[name].peak_flops_per_s.float32 == pytest.approx(lanes * 2 * mhz * 1e6, rel=0.01), name


@pytest.mark.parametrize("name", sorted(BUS))
def test_bandwidth_is_width_times_rate(name):
    width, gbits = BUS[name]
    assert DEVICES[name].memory_bandwidth_bytes_per_s == pytest.approx(width * gbits * 1e9 / 8, rel=0.01)


def test_tensor_cores_are_dense_and_in_step():
    for name, device in DEVICES.items():
        peaks = device.peak_flops_per_s
        if peaks.tf32 is not None:
            assert peaks.float16 == peaks.bfloat16 == pytest.approx(2 * peaks.tf32, rel=1e-3), name
            # of a card for graphics tensor cores are slower than those of one for training, of a GeForce twice where they add up in float32
            lowest, highest = {"RTX 4090": (0.9, 1.1), "RTX A6000": (1.9, 2.1)}.get(device.name, (5, 16))
            assert lowest < peaks.tf32 / peaks.float32 < highest, "with sparsity it would be twice that"
            assert peaks.float8 in (None, pytest.approx(2 * peaks.float16, rel=1e-3)), name
        elif peaks.float16 is not None:
            assert peaks.bfloat16 is None, name
            assert peaks.float16 >= 2 * peaks.float32 * 0.99, name


def test_each_generation_for_training_outdoes_the_one_before():
    line = [DEVICES[name] for name in ("k80", "p100-sxm2", "v100-sxm2-16gb", "a100-sxm4-40gb", "h100-sxm5-80gb", "gb200-186gb")]
    for before, after in itertools.pairwise(line):
        assert after.year > before.year
        assert after.peak("float32") > before.peak("float32")
        assert after.memory_bandwidth_bytes_per_s > before.memory_bandwidth_bytes_per_s
        assert after.memory_bytes >= before.memory_bytes
        assert (after.peak("mixed_float16") or 0) > (before.peak("mixed_float16") or 0)
    h100, h200 = DEVICES["h100-sxm5-80gb"], DEVICES["h200-sxm5-141gb"]
    assert h200.peak("float32") == h100.peak("float32")
    assert h200.memory_bandwidth_bytes_per_s > h100.memory_bandwidth_bytes_per_s


def test_sizes_of_one_family_cost_in_proportion_to_their_devices():
    for family in (("p2.xlarge", "p2.8xlarge", "p2.16xlarge"), ("p3.2xlarge", "p3.8xlarge", "p3.16xlarge")):
        per_device = {round(CLUSTERS[name].price.usd_per_node_hour / CLUSTERS[name].devices_per_node, 6) for name in family}
        assert len(per_device) == 1, family


@pytest.mark.parametrize("name", sorted(PRICED))
def test_an_hour_of_a_device_costs_cents_to_some_dollars(name):
    cluster = PRICED[name]
    assert 0.3 < cluster.price.usd_per_node_hour / cluster.devices_per_node < 15


LAB = {"name": "lab", "inter_node": {"bandwidth": "1 GB/s"}, "price": {"usd_per_node_hour": 1, "source": "a list", "date": "2020-01-01"}}


@pytest.mark.parametrize(
    ("cluster", "settings", "told"),
    [
        ({"use": "p2.8xlarge"}, [], (7.2, "2026-08-26")),
        ({"use": "p2.8xlarge", "price": {"usd_per_node_hour": 5}}, [], (5, "")),
        ({"use": "p2.8xlarge"}, [("cluster.price.usd_per_node_hour", 5)], (5, "")),
        (LAB, [("cluster.price.usd_per_node_hour", 5)], (5, "")),
        (LAB, [], (1, "2020-01-01")),
    ],
)
def test_a_price_of_ones_own_has_no_foreign_source(cluster, settings, told):
    table = {**scenario_table(), "cluster": cluster}
    price = scenario_from_table(apply_settings(table, settings), "test").cluster.price
    assert (price.usd_per_node_hour, price.date) == told
    assert (price.source == "given in the scenario") == (not price.date)
    assert price.date or not price.terms


# --- how a device is looked up ----------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "precision", "arithmetic"),
    [
        ("v100-sxm2-16gb", "float32", "float32"),
        ("v100-sxm2-16gb", "mixed_float16", "float16"),
        ("v100-sxm2-16gb", "mixed_bfloat16", None),
        ("a100-sxm4-40gb", "float32", "tf32"),
        ("a100-sxm4-40gb", "mixed_bfloat16", "bfloat16"),
        ("k80", "mixed_float16", None),
        ("k80", "int8", None),
        ("xeon-8124m-2s", "float32", "float32"),
    ],
)
def test_the_peak_is_that_of_what_tensorflow_multiplies_in(device, precision, arithmetic):
    spec = DEVICES[device]
    if arithmetic is None:
        assert spec.peak(precision) is None
    elif spec.cores is None:
        assert spec.peak(precision) == getattr(spec.peak_flops_per_s, arithmetic)


def test_a_processors_peak_is_cores_times_clock_times_operations():
    device = DEVICES["xeon-8124m-2s"]
    assert device.peak("float32") == 36 * 3.0e9 * 64
    assert device.peak_flops_per_s.float32 is None
    assert device.memory_bytes is None


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("nvidia a100-sxm4-40gb", "A100-SXM4-40GB"),
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2"),
        ("Tesla  K80", "Tesla K80 (one die)"),
        ("NVIDIA H200", "H200-SXM5-141GB"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA B200", "B200-SXM-180GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
    ],
)
def test_drivers_spellings_are_known(spelling, name):
    assert accelerator_named(spelling).name == name


@pytest.mark.parametrize("name", ["", "Tesla", "A100", "Intel(R) Xeon(R) Processor (CPU)"])
def test_what_may_be_several_devices_is_none_of_them(name):
    assert accelerator_named(name) is None


def test_the_users_own_devices_come_first_and_are_read_anew_when_changed(own):
    file = own / "card.toml"
    file.write_text(TOML)
    assert accelerator_named("own card rev. b").memory_bytes == 8e9
    file.write_text(TOML.replace("8 GB", "80 GB"))
    assert accelerator_named("Own Card").memory_bytes == 80e9
    (own / "t4.toml").write_text(TOML.replace("Own Card", "Tesla T4").replace('"Tesla T4 Rev. B"', '"T5"'))
    assert accelerator_named("Tesla T4").generation == "Ours"
    file.unlink()
    assert accelerator_named("Own Card") is None
    assert catalog.entries("devices")["t4"].absolute() == own / "t4.toml"


# --- what is wrong with a file is said in one line --------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("memory_bandwidth = ", "bandwidth = ", "memory_bandwidth: is missing"),
        ('"100 GB/s"', '"100 GB"', "memory_bandwidth: '100 GB' must"),
        ('memory = "us, 2025", ', "", "a source for memory"),
        ('"us, 2025", memory_bandwidth', '"", memory_bandwidth', "provenance.memory: ''"),
        ("float32 = 1e12", "float32 = 0", "peak_flops_per_s.float32: 0 must"),
        ("float32 = 1e12", "flaot32 = 1e12", "peak_flops_per_s.flaot32: "),
        ("float32 = 1e12", "", "has no peak rate"),
        ("year = 2025", "year = 25", "year: 25 must"),
        ("year = 2025", 'year = "2025"', "year: '2025' must"),
        ("year = 2025", "year = 2025\ncores = {count = 4, clock_hz = 3e9, float32_flops_per_cycle = 32}", "both cores and"),
        ('name = "Own Card"', "", "name: is missing"),
        ("year = 2025", "year = ", "is not valid TOML"),
    ],
)
def test_a_wrong_device_file_gets_one_clear_line(own, old, new, told):
    file = own / "card.toml"
    assert old in TOML
    file.write_text(TOML.replace(old, new))
    for look in (lambda: load_accelerator(file), lambda: accelerator_named("Tesla T4")):
        with pytest.raises(ScenarioError) as caught:
            look()
        problems = str(caught.value).splitlines()
        assert any(told in line for line in problems), problems
        assert all("card.toml: " in line for line in problems)


def test_two_devices_of_one_name_are_refused(own):
    (own / "card.toml").write_text(TOML.replace('"Own Card Rev. B"', '"tesla t4"'))
    with pytest.raises(ScenarioError, match=r"'(Tesla T4|tesla t4)' .*'(Own Card|Tesla T4)'"):
        accelerator_named("anything")


def test_a_link_to_nowhere_is_one_clear_line(own):
    (own / "gone.toml").symlink_to(own / "nowhere.toml")
    with pytest.raises(ScenarioError, match=r"gone\.toml: there is no such file"):
        accelerator_named("Tesla T4")


def test_a_device_goes_through_json_unchanged():
    for device in DEVICES.values():
        assert Accelerator.model_validate_json(device.model_dump_json()) == device


def test_files_speak_in_units_as_people_write_them():
    for file in (MODELS / "devices").glob("*.toml"):
        table = tomllib.loads(file.read_text())
        assert "memory_bandwidth" in table
        assert "memory_bytes" not in table
