"""Names of GPUs: what drivers print and people say leads to one profile, or to words that help."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec import resources
from simserve.spec.errors import ScenarioError
from simserve.spec.gpu_names import names_of_drivers, profile_named
from simserve.spec.gpus import find_gpu, profiles
from simserve.spec.load import parse_scenario

CARDS = sorted(names_of_drivers())


def test_every_real_card_has_its_drivers_name_and_no_name_leads_astray():
    unnamed = {"ideal-3tb", "cpu-calibrated-example"}
    assert set(CARDS) == {gpu.name for gpu in profiles()} - unnamed
    for profile, names in names_of_drivers().items():
        assert [profile_named(name) for name in names] == [profile] * len(names)


@given(st.sampled_from(CARDS), st.sampled_from(["-", "_", " "]), st.booleans(), st.randoms(use_true_random=False))
def test_case_separators_and_the_order_of_words_do_not_matter(profile, separator, upper, random):
    words = profile.split("-")
    random.shuffle(words)
    name = separator.join(words)
    assert profile_named(name.upper() if upper else name) == profile


@given(st.sampled_from(CARDS), st.data())
def test_a_name_is_taken_only_where_one_profile_has_all_its_words(profile, data):
    """Who asks for less is never given another card than who asks for more."""
    words = data.draw(st.lists(st.sampled_from(profile.split("-")), min_size=1, unique=True))
    try:
        found = profile_named(" ".join(words))
    except ScenarioError as error:
        found = str(error).removesuffix("; name one")
        found = profile if profile in found and " or " in found else found
    assert found == profile


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("H200", "h200-sxm-141gb"),
        ("mi300x", "mi300x-192gb"),
        ("b200", "b200-sxm-180gb"),
        ("h100-sxm", "h100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA H20", "h20-96gb"),
        ("rtx4090", "rtx-4090-24gb"),
        ("l40", "l40-48gb"),
        ("GB300 NVL72", "gb300-279gb"),
    ],
)
def test_unambiguous_names_are_taken(name, profile):
    assert find_gpu(name) is find_gpu(profile)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100", "h100 is h100-nvl-94gb, h100-pcie-80gb or h100-sxm-80gb; name one"),
        ("rtx 6000", "rtx 6000 is rtx-6000-ada-48gb or rtx-pro-6000-96gb; name one"),
        ("h300", "unknown GPU 'h300'; known: "),
        ("h100-sxn", "did you mean 'h100-sxm-80gb'?"),
        ("TPU v5e", "'TPU v5e' is a TPU of Google: graphs and kernels are others there"),
        ("gaudi3", "is a Gaudi of Intel"),
        ("Trainium2", "is an accelerator of AWS"),
        ("inf2", "is an accelerator of AWS"),
        ("Ascend 910B", "is an Ascend of Huawei"),
        ("Apple M4 Max", "is a chip of Apple"),
        ("cpu", "is a CPU"),
        ("", "unknown GPU ''"),
        ("../h100-sxm-80gb", "unknown GPU"),
    ],
)
def test_all_others_are_refused_in_one_sentence(name, words):
    with pytest.raises(ScenarioError) as error:
        profile_named(name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_result_names_the_profile_that_was_found():
    load = "{input: 10, output: 10, num_requests: 1, arrivals: {process: poisson, rate: 1}}"
    text = f"model: llama-3.1-8b\nworkload: {load}\n"
    assert parse_scenario(text + "cluster: {gpu: NVIDIA H200}").cluster.gpu.name == "h200-sxm-141gb"
    based = parse_scenario(text + "cluster: {gpu: {base: H200, memory: 100 GiB}}").cluster.gpu
    assert (based.name, based.memory) == ("h200-sxm-141gb", 100 * 2**30)


def test_the_names_of_folders_are_free_of_what_tells_no_card_from_another():
    assert set(CARDS) <= set(resources.names("hardware_profiles"))
    assert all(name == name.lower() and " " not in name for name in CARDS)
