"""The page of forecasts: every section, lines inside their frames, errors as counted by hand, and no fixed widths."""

import html
import importlib.util
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FILE = Path(__file__).parents[3] / "examples" / "forecast_page.py"
SPEC = importlib.util.spec_from_file_location("forecast_page", FILE)
forecast_page = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(forecast_page)

IDS = ["north", "<south> & 'west'"]
VALUES = st.floats(-1e6, 1e6) | st.just(math.nan)


def drawn(seed=0, steps=5):
    """A page of two series, its errors, and what they were counted from."""
    draw = numpy.random.default_rng(seed).normal(size=(3, 7, steps, len(IDS)))
    truth, *others = map(torch.as_tensor, draw)
    forecasts = dict(zip(["a model", "last value"], others, strict=True))
    errors = forecast_page.Errors()
    for part in (slice(0, 3), slice(3, 7)):
        errors.add(truth[part], {name: forecast[part] for name, forecast in forecasts.items()})
    lines = {name: forecast[0, :, 0].tolist() for name, forecast in forecasts.items()}
    shown = [forecast_page.Shown(f"{name}, window 3", [0.0, 1.0], truth[0, :, 0].tolist(), lines) for name in IDS]
    return forecast_page.page("Sales of <all>", IDS, shown, errors, "deviations"), errors, truth, forecasts


def test_the_page_has_every_section():
    page = drawn()[0]
    for section in ("Forecast and truth", "Errors by step of the horizon", "Errors by series"):
        assert page.count(f"<h2>{section}</h2>") == 1
    assert page.count("<figure>") == 4  # two windows, MSE and MAE
    assert re.findall(r"<caption>(\w+)</caption>", page) == ["MSE", "MAE"]
    for name in IDS:
        assert page.count(f"<tr><th>{html.escape(name)}</th>") == 2
    assert "over 7 windows" in page
    assert "Sales of &lt;all&gt;" in page
    assert "<south>" not in page


def test_nothing_is_loaded_and_nothing_has_a_fixed_width():
    page = drawn()[0]
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page
    assert not re.search(r"<script|<link|<img|@import|url\(|https?:", page)
    # A length in pixels or em that a narrow screen does not have. Keys are small; most-widths give way.
    widths = re.findall(r"(?<![-\w])(?:min-)?width: *([^;}]+)", page)
    assert all(width in ("100%", "0", "1.8rem") for width in widths)
    assert not re.search(r"<(?:svg|table|td|th|figure)[^>]* width=", page)
    assert "minmax(min(100%," in page
    assert "white-space: nowrap" not in page


def test_errors_are_those_counted_by_hand():
    page, errors, truth, forecasts = drawn()
    for name, forecast in forecasts.items():
        for step in range(truth.shape[1]):
            for series in range(len(IDS)):
                away = [(forecast[window, step, series] - truth[window, step, series]).item() for window in range(7)]
                assert errors.mse(name)[step, series].item() == pytest.approx(sum(each**2 for each in away) / 7)
                assert errors.mae(name)[step, series].item() == pytest.approx(sum(map(abs, away)) / 7)
    rows = re.findall(r"<tr><th>([^<]*)</th>(.*?)</tr>", page)
    found = {name: [errors.mse(each)[:, place].mean().item() for each in forecasts] for place, name in enumerate(IDS)}
    found["all"] = [errors.mse(each).mean().item() for each in forecasts]
    for name, cells in [row for row in rows if "<td" in row[1]][: len(found)]:
        values = found[html.unescape(name)]
        assert re.findall(r">([\d.]+)</td>", cells) == [f"{value:.3f}" for value in values]
        assert re.search(r'class="best">([\d.]+)<', cells)[1] == f"{min(values):.3f}"


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=9), st.lists(VALUES, min_size=2, max_size=9), st.lists(VALUES, max_size=9))
def test_lines_stay_inside_their_frame(seen, truth, forecast):
    shown = forecast_page.Shown("any", seen, truth, {"one": forecast[: len(truth)]})
    inside(forecast_page.forecast_chart(shown))
    inside(forecast_page.error_chart("MSE", {"one": [abs(value) for value in truth]}))


def inside(figure):
    """Check that a chart is well formed, and that all of its lines and labels are in its frame."""
    tree = ElementTree.fromstring(figure).find("svg")
    left, top, width, height = map(float, tree.get("viewBox").split())
    assert (left, top) == (0, 0)
    for line in tree.iter("polyline"):
        for point in line.get("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
    for text in tree.iter("text"):
        assert 0 <= float(text.get("x")) <= width
        assert 0 <= float(text.get("y")) <= height


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_round_and_few(low, extent):
    ticks = forecast_page.ticks(low, low + extent)
    assert 2 <= len(ticks) <= 8
    assert all(low - 1e-6 * extent <= tick <= low + 1.000001 * extent for tick in ticks)
