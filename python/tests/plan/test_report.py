"""The page that shows a plan: self-contained, well-formed, true to the numbers, and small for any plan."""

from html.parser import HTMLParser

import batchloom as bl
import pytest


class Page(HTMLParser):
    """Collects what a page draws and checks that what it opens it closes."""

    def __init__(self, text):
        super().__init__()
        self.counts = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        assert not {name for name, _ in attrs} & {"src", "href"}, "something is loaded from elsewhere"

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("samples", [1, 100, 100_000, 10**9])
@pytest.mark.parametrize("world_size", [1, 3])
def test_report_draws_every_plan(samples, world_size, tmp_path):
    plan = bl.Plan(samples, 7, shuffle=True, world_size=world_size)
    plan.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(text) < 1_000_000
    assert plan.fingerprint in page.text
    assert f"{plan.stats()['batches']:,}" in page.text
    assert page.counts["rect"] == min(len(plan), 120) * world_size
    assert min(samples, 3000) <= page.counts["circle"] <= 3000 + world_size * 7


def test_report_of_the_rest_of_an_epoch(tmp_path):
    plan = bl.Plan(100, 8, shuffle=True)
    loader = bl.DataLoader(bl.TensorDataset(__import__("numpy").arange(100)), 8, shuffle=True)
    loader.load_state_dict(plan._native.state(13))
    loader.plan().report(tmp_path / "plan.html")
