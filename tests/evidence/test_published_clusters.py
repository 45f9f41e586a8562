"""The machines that published tables ran on: each file loads, and each fact names its source."""

from __future__ import annotations

import re

import pytest

from evidence.published.tables import load_tables

TABLES = load_tables()


@pytest.mark.parametrize("name", sorted(TABLES.clusters))
def test_a_cluster_says_where_its_figures_come_from(name):
    cluster = TABLES.clusters[name]
    assert cluster.name == name
    assert cluster.basis == "published"
    assert cluster.device
    assert "inter_node" in cluster.provenance
    if cluster.devices_per_node > 1:
        assert "intra_node" in cluster.provenance
    for fact, source in cluster.provenance.items():
        assert re.search(r"\b(19|20)\d\d\b", source) or "assumed" in source, f"{fact}: {source}"


def test_software_and_networks_name_their_source():
    from simulator.base.files import read_toml

    for stack in TABLES.stacks.values():
        assert re.search(r"\b20\d\d\b", stack.source), stack.id
    for network in read_toml(TABLES.home / "networks.toml")["network"]:
        assert re.search(r"\b20\d\d\b", network["source"]), network["id"]
