"""The notebook of python/examples, cell by cell. `TAILCUT` is the binary."""

import json
import os
from pathlib import Path

import matplotlib
import pytest

TAILCUT = Path(os.environ["TAILCUT"])
NOTEBOOK = Path(__file__).parents[1] / "examples/figures.ipynb"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What its cells define, run in order in a directory of their own."""
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "outputs are not committed"
    matplotlib.use("Agg")
    names, before = {"__name__": "notebook"}, Path.cwd()
    path = os.environ["PATH"]
    os.chdir(tmp_path_factory.mktemp("notebook"))
    os.environ["PATH"] = f"{TAILCUT.parent}:{path}"
    try:
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        yield names | {"directory": Path.cwd()}
    finally:
        os.environ["PATH"] = path
        os.chdir(before)


def test_the_sweep_is_a_table_that_theory_agrees_with(names):
    assert names["p99"].shape == (5, 3)
    assert (names["p99"]["jbsq:2"] < names["p99"]["random"]).all()
    # 16 M/M/1 queues: the p99 over the mean service is ln 100 / (1 - load); its standard error is that of the simulation.
    random = names["sweep"].query("policy == 'random' and load == 0.5").iloc[0]
    assert random["exact.p99"] == pytest.approx(9.21034, rel=1e-5)
    assert random["sojourn_over_service.p99"] == pytest.approx(9.21034, rel=0.05)


def test_the_figure_is_letters_and_lines(names):
    figure = (names["directory"] / "bound.pdf").read_bytes()
    assert figure.startswith(b"%PDF-") and b"/FontFile2" in figure and b"/Subtype /Image" not in figure


def test_the_requests_have_the_percentiles_of_the_result(names):
    result, latency_us = names["result"], names["latency_us"]
    assert len(latency_us) == result["counts"]["replied"] > 1000
    # An HdrHistogram of three digits.
    assert latency_us.quantile(0.5) == pytest.approx(result["latency_us"]["intended"]["p50"], rel=0.01)
