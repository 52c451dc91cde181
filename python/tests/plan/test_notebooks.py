"""Tables of plans and loaders in notebooks."""

import batchloom as bl
import numpy
import pytest
import torch


@pytest.mark.parametrize("thing", [bl.Plan(10, 4), bl.DataLoader(bl.TensorDataset(numpy.arange(10)), 4)], ids=repr)
def test_a_table_of_the_costs(thing):
    page = thing._repr_html_()
    assert page.startswith("<table>")
    assert "<th>steps</th><td>3</td>" in page
    assert type(thing).__name__ in page


def test_titles_are_text():
    page = bl.DataLoader(bl.TensorDataset(**{"<b>": numpy.arange(10)}), 4)._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_a_plan_that_is_read_again_by_torch_says_what_goes_on():
    plan = bl.Plan(6, 4, shuffle=True)
    loader = torch.utils.data.DataLoader(range(6), batch_sampler=plan)
    first = [batch.tolist() for batch in loader]
    with pytest.warns(UserWarning, match="BatchSampler") as caught:
        assert [batch.tolist() for batch in loader] == first
    assert (len(caught), caught[0].filename) == (1, __file__)
    assert [batch.tolist() for batch in loader] == first
    assert [list(plan) for _ in range(3)]
