"""The keywords of a loader: each is an option of one stage, documented in one class."""

import dataclasses
import re

import batchloom as bl
import pytest
from batchloom.collate.field import FieldKeywords
from batchloom.delivery.options import DeliveryKeywords
from batchloom.loader.keywords import LoaderKeywords
from batchloom.loader.torch.options import TorchOptions
from batchloom.plan.options import OrderKeywords, PlanKeywords
from batchloom.ranks.ranks import RankKeywords

STAGES = [
    (OrderKeywords, bl.PlanOptions, {"shuffle", "seed", "chunks", "chunks_open"}),
    (PlanKeywords, bl.PlanOptions, {"shuffle"}),
    (FieldKeywords, bl.FieldOptions, set()),
    (DeliveryKeywords, bl.DeliveryOptions, set()),
    (RankKeywords, bl.RankOptions, set()),
]

# Arguments by place, and the names that torch's own loader has for the same.
BY_PLACE = {"dataset", "batch_size", "shuffle"}
OF_TORCH = {*TorchOptions.__annotations__, "drop_last"}


@pytest.mark.parametrize(("keywords", "options", "apart"), STAGES)
def test_each_keyword_is_an_attribute_of_its_options(keywords, options, apart):
    attributes = {field.name for field in dataclasses.fields(options)}
    assert {*keywords.__annotations__} == attributes - apart
    documented = set(re.findall(r"^        (\w+): ", options.__doc__, re.MULTILINE))
    assert attributes <= documented


def test_no_two_stages_share_a_keyword():
    stages = [keywords for keywords, _, _ in STAGES if keywords is not PlanKeywords]
    names = [name for stage in (*stages, TorchOptions) for name in stage.__annotations__]
    assert len(names) == len(set(names))
    assert {*LoaderKeywords.__annotations__} == {*names, "batching", "seed"}


def test_the_loader_lists_its_keywords_once():
    listed = re.findall(
        r"``(\w+)``", bl.DataLoader.__doc__.partition("**keywords")[2].partition("*Arguments of torch")[0]
    )
    own = {*LoaderKeywords.__annotations__} - set(TorchOptions.__annotations__)
    assert own <= {*listed}


def test_keywords_of_our_own_are_few():
    assert len({*LoaderKeywords.__annotations__} - OF_TORCH) <= 36


@pytest.mark.parametrize(
    ("name", "meant"), [("drop_lst", "drop_last"), ("num_thread", "num_threads"), ("shardsize", "shard_size")]
)
def test_a_keyword_that_is_misspelled_is_refused_with_the_one_that_is_meant(name, meant):
    with pytest.raises(
        TypeError, match=f"DataLoader\\(\\) got an unexpected keyword argument '{name}'; did you mean {meant}\\?"
    ):
        bl.DataLoader(None, **{name: 1})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (bl.Field(), "Field()"),
        (bl.Field(dtype="int64", pad=-1), "Field(dtype='int64', pad=-1)"),
        (bl.Field(slot=bl.Crop(3)), "Field(slot=Crop(3, keep='center'))"),
    ],
)
def test_a_field_shows_what_was_given(options, expected):
    assert repr(options) == expected
