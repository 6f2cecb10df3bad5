"""Every file of the catalogue says what it is, whose it is and where its numbers are from."""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from simserve.spec import resources

NAMES = resources.names("models")
UNCOUNTED = {"tiny-llama"}
"""Random weights, and a family of which no library at hand has a class."""
EXPECTED = Path(__file__).parent / "data" / "catalogue_parameters.csv"


def read(name: str) -> dict:
    path = resources.find("models", f"{name}.json")
    assert path is not None
    return json.loads(path.read_text(encoding="utf-8"))


def expected() -> list[dict[str, str]]:
    with EXPECTED.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_says_its_source_its_ids_and_its_family(name):
    config = read(name)
    assert config["_source"].strip()
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", each) for each in config["_ids"])
    assert bool(config["_ids"]) == (name != "tiny-llama"), "random weights are on no hub"
    assert all(isinstance(each, str) and each for each in config["architectures"])
    assert config["architectures"]
    assert config["model_type"]


def test_an_id_names_one_file():
    ids = Counter(each.lower() for name in NAMES for each in read(name)["_ids"])
    assert [each for each, times in ids.items() if times > 1] == []


def test_the_first_id_is_the_one_that_the_source_tells_of():
    for name in NAMES:
        for each in read(name)["_ids"][:1]:
            assert f"https://huggingface.co/{each}/blob/main/config.json" in read(name)["_source"], name


def test_no_key_is_there_twice():
    def unique(pairs: list[tuple[str, object]]) -> dict:
        assert len({key for key, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    for name in NAMES:
        path = resources.find("models", f"{name}.json")
        assert path is not None
        json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique)


def test_a_list_of_layers_has_an_item_for_each_layer():
    """Those of Step-3.7 go on with its drafting layers."""
    for name in NAMES:
        config = read(name)
        text = config.get("text_config", config)
        if "layer_types" in text and not name.startswith("step-3.7"):
            assert len(text["layer_types"]) == text["num_hidden_layers"], name


def test_every_model_has_an_expected_number_of_parameters_and_its_source():
    rows = expected()
    assert sorted({row["name"] for row in rows} | UNCOUNTED) == NAMES
    assert len(rows) == len(NAMES) - len(UNCOUNTED)
    for row in rows:
        assert 0 < float(row["active"]) <= float(row["text_parameters"]) <= float(row["parameters"]), row
        assert 0 < float(row["tolerance"]) <= 0.02, row
        assert row["source"].strip(), row
