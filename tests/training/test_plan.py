"""A plan says what training really takes, and its times are those of files in docs/results."""

import json
from pathlib import Path

import pytest
import torch

import pairre
from pairre.settings import override
from pairre.support.errors import PairREError
from pairre.training.measured_steps import MEASURED_STEPS
from pairre.training.plan import graph_of_sizes, make_plan
from pairre.training.step import Trainer

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["train.optimizer=adagrad", "model.storage=float16"],
        ["train.update_rows=touched", "model.reciprocal=true"],
        ["train.optimizer=elementwise-adagrad", "model.name=conve", "loss.name=logistic"],
    ],
)
def test_memory_is_that_of_a_trainer(graph, quick, settings):
    recipe = override(quick, settings)
    plan = make_plan(graph, recipe)
    trainer = Trainer(graph, recipe, torch.device("cpu"))
    by_name = {part.name: part.num_bytes for part in plan.parts}
    for name, table in trainer.model.named_parameters():
        assert by_name[f"table of {name} rows"] == table.numel() * table.element_size()
        state = trainer.tables.tables[name].state().values()
        assert by_name[f"optimiser of {name} rows"] == sum(t.numel() * t.element_size() for t in state)
    index = [trainer.sampler.indexes[side] for side in ("head", "tail")]
    held = sum(t.numel() * t.element_size() for one in index for t in (one.pair_keys, one.offsets, one.members))
    [bound] = [size for name, size in by_name.items() if name.startswith("index")]
    assert 0.4 * bound < held <= bound + 16
    assert plan.needed == sum(by_name.values())


def test_sizes_stand_for_a_graph():
    graph = graph_of_sizes("2.5M/535/16m")
    assert (graph.num_entities, graph.num_relations, len(graph.train)) == (2_500_000, 535, 16_000_000)
    assert graph_of_sizes("1/2/3").num_relations == 2
    for other in ("atlas", "1/2", "a/b/c", "1/2/3/4", "graphs/2/3"):
        assert graph_of_sizes(other) is None


def test_processes_divide_the_rows_of_entities_alone():
    one, three = (make_plan("1M/100/5M", num_processes=num) for num in (1, 3))
    *tables, batch = zip(one.parts, three.parts, strict=True)
    assert batch[0].num_bytes / 3 < batch[1].num_bytes < batch[0].num_bytes  # negatives are shared by a batch
    for before, after in tables:
        assert after.num_bytes == pytest.approx(before.num_bytes / (3 if before.divided else 1), rel=1e-5)
    assert {part.name for part in one.parts if part.divided} == {"table of entity rows", "optimiser of entity rows"}
    assert three.as_dict()["needed_bytes_of_all_processes"] == 3 * three.needed
    here, each = three.places[:2]
    assert (each.name, each.num_bytes) == ("this machine's memory, divided by 3 processes", here.num_bytes // 3)
    assert not any("divided" in place.name for place in one.places)


def test_what_does_not_fit_is_named():
    places = {place.name: place for place in make_plan("91230610/1387/601062811", overrides=ADAGRAD).places}
    assert places["NVIDIA H200, 141 GB"].missing == 0
    assert "table of entity rows alone 73 GB" in places["24 GB card"].why
    assert "alone" not in places["80 GB card"].why


def test_a_table_on_the_host_is_not_on_the_card():
    plan = make_plan("91230610/1387/1M", overrides=[*ADAGRAD, "tables.place=host"])
    [host] = [place for place in plan.places if place.name == "this machine's memory beside a GPU"]
    assert {part.name for part in plan.parts if part.on_host} == {"table of entity rows", "optimiser of entity rows"}
    assert host.missing == max(0, sum(part.num_bytes for part in plan.parts if part.on_host) - host.num_bytes)
    assert not any(place.missing for place in plan.places if "card" in place.name)
    assert plan.needed == make_plan("91230610/1387/1M", overrides=ADAGRAD).needed


ADAGRAD = ["model.dim=200", "train.optimizer=adagrad", "train.batch=512", "sampling.negatives=128"]


def test_the_computed_memory_is_near_the_measured():
    shapes = json.loads((RESULTS / "gpu-2026-11-15.json").read_text())["shapes"]
    [measured] = [line["peak_memory_gb"] for line in shapes if line["shape"] == "WikiKG90M"]
    assert 0.8 < make_plan("91230610/1387/601062811", overrides=ADAGRAD).needed / 1e9 / measured < 1


def test_measured_and_computed_times():
    recipe = [*ADAGRAD, "train.optimizer=adam", "train.update_rows=touched", "train.steps=3600000"]
    durations = {found.device: found for found in make_plan("2.5M/535/5120000", overrides=recipe).durations}
    gpu = durations["NVIDIA H200"]
    assert (gpu.measured, gpu.step_ms, gpu.source.graph) == (True, 0.0585, "ogbl-wikikg2")
    assert gpu.epoch_hours == pytest.approx(2 * 10_000 * 0.0585 / 3.6e6)
    assert gpu.run_hours == pytest.approx(0.0585)
    assert not durations["2 CPU cores"].measured
    larger = make_plan("2.5M/535/16M", overrides=[*recipe, "model.dim=400"]).durations[0]
    assert (larger.measured, larger.step_ms) == (False, pytest.approx(0.117))
    smaller = make_plan("2.5M/535/16M", overrides=[*recipe, "model.dim=100"]).durations[0]
    assert smaller.step_ms == 0.0585
    assert make_plan("1k/10/9k", overrides=["model.name=transe"]).durations == []


def figures():
    gpu = json.loads((RESULTS / "gpu-2026-11-15.json").read_text())
    yield "fb15k-237", "adam all", 0, gpu["fb15k-237"]["step_ms"]
    names = {"train.optimizer=adagrad": "adagrad", "train.rows=touched": "adam touched", "train.rows=all": "adam all"}
    for line in gpu["shapes"]:
        yield line["shape"], names[line["setting"]], 0, line["step_ms"]
    names |= {key.replace("rows", "update_rows"): name for key, name in names.items()}
    for size in json.loads((RESULTS / "scale-host-2026-11-19.json").read_text())["sizes"]:
        for line in size["lines"]:
            if line["place"] == "host":
                first, *more = line["settings"]
                yield f"{size['entities']:,} entities", names[first], len(more), line["step_ms"]
    for line in json.loads((RESULTS / "cpu-2026-11-15.json").read_text())["lines"]:
        if line["contender"].startswith("pairre, ") and line["task"] == "train":
            optimizer = "adam all" if "all rows" in line["contender"] else "adam touched"
            yield "fb15k-237", optimizer, int("own" in line["contender"]), 1024e3 / line["triples_per_second"]


def test_every_measured_step_is_on_file():
    found = [(graph, optimizer, chunk) for graph, optimizer, chunk, _ in figures()]
    points = [(point.graph, point.optimizer, point.chunk_size) for point in MEASURED_STEPS]
    assert points == found
    for point, (*_, step_ms) in zip(MEASURED_STEPS, figures(), strict=True):
        assert point.step_ms == pytest.approx(step_ms, rel=1e-3)


def test_faults():
    with pytest.raises(PairREError, match="--nproc 0"):
        make_plan("1k/10/9k", num_processes=0)
    with pytest.raises(PairREError, match="train is empty"):
        make_plan("1k/10/0")
    with pytest.raises(PairREError, match="no such file"):
        make_plan("graphs/2/3")
    assert pairre.make_plan("atlas").sizes[0] == 1518
