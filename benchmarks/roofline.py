"""How near is each GPU kernel to what the chip can do?

The ceilings are measured in the same run: lane instructions a second of loops that touch nothing but registers, and
bytes a second, read plus written, of a copy larger than the L2 cache and of one that fits it.

    python benchmarks/roofline.py [PART …] [--quick] [--keep | --json FILE]

How counts are made. Instructions are those that the formula asks for, an element at a time: FADD, FMUL, FFMA, LOP3 and
MUFU are one each; addresses, loads, loops and what a kernel computes twice are not among them. An element is a (query,
candidate, feature), or what the entry says. Each entry states its instructions an element, by the ceiling they are held
against: `issue` (FFMA with operands that repeat), `forward` (FFMA, FADD) and `backward` (FFMA, LOP3, FADD, FFMA, FFMA:
three different operands take longer to fetch); `special` are the roots, quotients, exponentials and logarithms among
them (MUFU), which have a unit of their own. Bytes are those of each input once and each output once, of gathered rows
each row that is touched once; forward and backward are two passes, and what lies between kernels is not needed.

A share is the time that the ceiling would need, divided by the time taken: the median of replays of a CUDA graph of
many launches. There, what fits the L2 stays in it. So `bound` holds needed bytes of up to half the L2 against the copy
within it, and more against the copy in device memory: "arithmetic" or "memory" is the larger share, "latency" is said
where both are under 30 %.
"""

from __future__ import annotations

import functools
import itertools
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import Tensor

import machine
from ceilings import DEVICE, Bench, below, both, ceilings, differentiate, gpu, normal, size
from pairre.graph.index import KnownTriples
from pairre.kernels import AdamState, BatchPlan, Metric, RankingBatch
from pairre.kernels.cuda import native, ranks, triton_scores
from pairre.support.randomness import key

SHAPES = [(1024, 256, 1500), (512, 128, 200)]  # queries, candidates, features
ENTITIES, RELATIONS, TRIPLES, DIM, BATCH, NEGATIVES = 14541, 237, 272115, 1500, 1024, 256  # FB15k-237 as published
EVALUATED, COUNTED = 4096, 1024  # queries that the CUDA C++ kernels rank at a time, and those that both kernels do
MEMBERS = 100  # known entities of a query, on average
OWN_ROWS, OWN_PLACES = 10000, 64
MISSED = 6  # steps that an entity's row has missed when it is read, on average
TURNS = 8  # sets of ids that take turns, so that rows come from memory

# -------------------------------------------------------------------------------------------------------------- parts

COUNTS: dict[
    Metric, tuple[dict[str, float], dict[str, float], str]
] = {  # a term: a feature, of "modulus" a complex one
    "l1": ({"forward": 2}, {"backward": 5}, "x FFMA, Σ FADD; x FFMA, sign LOP3, dq FADD, dw FFMA, dc FFMA"),
    "l2": ({"issue": 2}, {"issue": 5}, "x FFMA, Σ FFMA; x FFMA, slope FMUL, dq FADD, dw FFMA, dc FFMA"),
    "modulus": (
        {"issue": 8, "special": 1},
        {"issue": 20, "special": 1},
        "x 4 FFMA, |x| FMUL FFMA MUFU, Σ FADD; x 4, 1/|x| 3, slope 3, dq 2 FADD, dw 4 FFMA, dc 4 FFMA; "
        "an element is a complex feature",
    ),
    "dot": ({"issue": 1}, {"issue": 2}, "Σ FFMA; dq FFMA, dc FFMA; with a gradient these are three calls of cuBLAS"),
}


def native_shared(bench: Bench) -> None:
    """CUDA C++: scores and gradients of weighted L1."""
    forward, backward, _ = COUNTS["l1"]
    for shape in SHAPES:
        num_q, num_c, dim = shape
        q, w, c, g = normal(num_q, dim), normal(num_q, dim), normal(num_c, dim), normal(num_q, num_c)
        elements, moved = math.prod(shape), size(q, w, c, g)
        scores = functools.partial(native.shared_scores, q, w, c, None)
        bench.time("native scores l1", shape, scores, forward, elements, moved)
        gradients = functools.partial(native.shared_gradients, q, w, c, g)
        bench.time("native gradients l1", shape, gradients, backward, elements, moved + size(q, w, c))


def triton_shared(metric: Metric, bench: Bench) -> None:
    """Triton: shared candidates, one metric."""
    forward, backward, note = COUNTS[metric]
    for shape in SHAPES:
        num_q, num_c, dim = shape
        q, c, g = normal(num_q, dim), normal(num_c, dim), normal(num_q, num_c)
        w = None if metric == "dot" else normal(num_q, dim)
        elements, moved = math.prod(shape) / (2 if metric == "modulus" else 1), size(q, w, c, g)
        call = functools.partial(triton_scores.score_candidates, metric, q, w, c)
        bench.time(f"triton {metric} forward", shape, call, forward, elements, moved, f"{note}; sums are not split")
        if w is None:
            score, tables = lambda q, c: triton_scores.score_candidates("dot", q, None, c), (q, c)
        else:
            score, tables = functools.partial(triton_scores.score_candidates, metric), (q, w, c)
            call = functools.partial(triton_scores._shared_scores, metric, q, w, c, None, True)
            bench.time(f"triton {metric} forward in training", shape, call, forward, elements, moved, note)
        call = functools.partial(differentiate, score, tables, g)
        total = 2 * moved + size(*tables)
        name = f"triton {metric} forward + backward"
        bench.time(name, shape, call, both(forward, backward), elements, total, note)


def triton_forms(bench: Bench) -> None:
    """Triton: the other forms of L1."""
    forward, backward, note = COUNTS["l1"]
    compare, pairs = (
        functools.partial(triton_scores.score_candidates, "l1"),
        functools.partial(triton_scores.score_pairs, "l1"),
    )

    num_q, _, dim = SHAPES[1]
    q, w, c, ids = normal(num_q, dim), normal(num_q, dim), normal(OWN_ROWS, dim), below(OWN_ROWS, num_q, OWN_PLACES)
    g, shape = normal(num_q, OWN_PLACES), (num_q, OWN_PLACES, dim)
    moved, elements = size(q, w, ids, g) + len(ids.unique()) * dim * 4, math.prod(shape)
    text = f"{note}; candidates from {OWN_ROWS} rows"
    call = functools.partial(compare, q, w, c, ids)
    bench.time("triton l1 own forward", shape, call, forward, elements, moved, text)

    def own(q: Tensor, w: Tensor, c: Tensor) -> Tensor:
        return compare(q, w, c, ids)

    call, total = functools.partial(differentiate, own, (q, w, c), g), 2 * moved + size(q, w, c)
    bench.time("triton l1 own forward + backward", shape, call, both(forward, backward), elements, total, text)

    for num_q, _, dim in SHAPES:
        q, w, c, g = normal(num_q, dim), normal(num_q, dim), normal(num_q, dim), normal(num_q)
        shape, moved = (num_q, dim), size(q, w, c, g)
        call = functools.partial(pairs, q, w, c)
        bench.time("triton l1 pairs forward", shape, call, forward, q.numel(), moved)
        call, total = functools.partial(differentiate, pairs, (q, w, c), g), 2 * moved + size(q, w, c)
        bench.time("triton l1 pairs forward + backward", shape, call, both(forward, backward), q.numel(), total)


def candidates_with_weights(bench: Bench) -> None:
    """Both ways to compare pairs of entities with all relations."""
    shape = (BATCH, RELATIONS, DIM)
    q, w, c, r = normal(BATCH, DIM), normal(BATCH, DIM), normal(RELATIONS, DIM), normal(RELATIONS, DIM)
    g, elements = normal(BATCH, RELATIONS), math.prod(shape)
    moved, total, more, less = size(q, w, c, r, g), size(q, w, c, r), {"forward": 3}, {"backward": 7}
    text = "x FMUL FFMA, Σ FADD; x FMUL FFMA, sign LOP3, four gradients FFMA"
    scores = functools.partial(native.shared_scores, q, w, c, None, r)
    bench.time("native scores l1 weights", shape, scores, more, elements, moved, text)
    gradients = functools.partial(native.shared_gradients, q, w, c, g, r)
    bench.time("native gradients l1 weights", shape, gradients, less, elements, moved + total, text)
    call = functools.partial(triton_scores.score_candidates, "l1", q, w, c, None, r)
    bench.time("triton l1 weights forward", shape, call, more, elements, moved, text)

    def weighted(q: Tensor, w: Tensor, c: Tensor, r: Tensor) -> Tensor:
        return triton_scores.score_candidates("l1", q, w, c, None, r)

    call = functools.partial(differentiate, weighted, (q, w, c, r), g)
    name = "triton l1 weights forward + backward"
    bench.time(name, shape, call, both(more, less), elements, 2 * moved + total, text)


def evaluation(bench: Bench) -> None:
    """Ranks: both ways to count, and true scores."""
    forward, _, _ = COUNTS["l1"]
    q, w, c = normal(EVALUATED, DIM), normal(EVALUATED, DIM), normal(ENTITIES, DIM)
    own = below(ENTITIES, EVALUATED)
    rows = c[own].contiguous()
    true = native.true_scores(q, w, rows)
    members = below(ENTITIES, EVALUATED, 2 * MEMBERS).sort(1).values.int().flatten().contiguous()
    begin = torch.arange(EVALUATED, device=DEVICE) * 2 * MEMBERS
    end = begin + below(2 * MEMBERS + 1, EVALUATED)
    higher, equal = torch.zeros_like(begin), torch.zeros_like(begin)
    note = f"{MEMBERS} entities of a query are left out on average; neither that nor counting is in the instructions"
    for num in (EVALUATED, COUNTED):
        shape, tables = (num, ENTITIES, DIM), (q[:num], w[:num], c)
        lists = true[:num], begin[:num], end[:num], members, own[:num]
        counts = higher[:num], equal[:num]
        ranked = RankingBatch("l1", q[:num], w[:num], true[:num], own[:num], begin[:num], end[:num], members)
        listed = 4 * int((end - begin)[:num].sum())
        moved = size(*tables, *lists[:3], lists[4], *counts, *counts) + listed
        elements = math.prod(shape)
        call = functools.partial(native.count_above, *tables, *lists, 0, *counts)
        bench.time("native count_above l1", shape, call, forward, elements, moved, note)
        if num == COUNTED:
            call = functools.partial(ranks.count_above, ranked, c, 0)
            bench.time("triton count_above l1", shape, call, forward, elements, moved, note)
    call = functools.partial(native.true_scores, q, w, rows)
    bench.time("native true_scores l1", (EVALUATED, DIM), call, forward, q.numel(), size(q, w, rows, true))


def adam_table(num_rows: int, dim: int, missed: int, clock: int) -> AdamState:
    """Return a table in the middle of training, whose rows missed up to twice as many steps."""
    seen = (clock - below(2 * missed + 1, num_rows)).int()
    rates = torch.tensor([[1e-4, 1.0]], device=DEVICE).repeat(2 * clock, 1)
    mean, square = 1e-3 * normal(num_rows, dim), 1e-6 * normal(num_rows, dim).abs()
    return AdamState(normal(num_rows, dim), mean, square, seen, rates)


def rows(name: str, num: int, num_rows: int, dim: int, missed: int, bench: Bench) -> None:
    """Rows of one table: ids sorted, rows read and moved. Sets of ids take turns, so that entities come from memory."""
    shape, row, step = (num, num_rows, dim), 4 * dim, 500  # ids, rows, features; bytes of a row
    clock = torch.tensor(step, device=DEVICE)
    adam, values, gradient = adam_table(num_rows, dim, missed, step), normal(num, dim), normal(num, dim)
    sets = [(ids, gpu.group_ids(ids)) for ids in below(num_rows, TURNS, num)]
    turns = itertools.cycle(sets)
    distinct = sum(len(ids.unique()) for ids, _ in sets) / TURNS
    assert adam.seen is not None
    steps = sum(int((step - adam.seen[ids].long()).sum()) for ids, _ in sets) / TURNS  # that a call catches up

    def group() -> None:
        gpu.group_ids(next(turns)[0])

    note = "comparisons of a sort, log₂ of the number of ids for each; an element is an id"
    bench.time(f"group {name}", (num,), group, {"issue": math.ceil(math.log2(num))}, num, 4 * 8 * num, note)

    def read() -> None:
        gpu.gather_adam(adam, *next(turns), clock)

    moved = (3 * distinct + num) * row + 8 * num + 4 * distinct
    note = f"an element is a feature and a missed step, {steps / num:.1f} of a row: 3 FMUL, 2 FFMA, MUFU"
    bench.time(f"read_adam {name}", shape, read, {"issue": 6, "special": 1}, steps * dim, moved, note)

    def move() -> None:
        gpu.update_adam(adam, next(turns)[1], values, gradient, clock)

    moved = (6 * distinct + num) * row + 24 * num + 8 * distinct
    note = f"{distinct:.0f} distinct rows; decay 2 FMUL, mean FMUL FFMA, square 2 FMUL FFMA, move FMUL 2 FFMA 2 MUFU"
    bench.time(f"adam_rows {name}", shape, move, {"issue": 12, "special": 2}, distinct * dim, moved, note)

    square = torch.ones(num_rows, device=DEVICE)

    def adagrad() -> None:
        gpu.update_adagrad(adam.table, square, adam.rates, next(turns)[1], gradient, clock)

    moved = (2 * distinct + num) * row + 24 * num + 8 * distinct
    note = f"{distinct:.0f} distinct rows; square FFMA, move FFMA"
    bench.time(f"adagrad_rows {name}", shape, adagrad, {"issue": 2}, distinct * dim, moved, note)


def batch(bench: Bench) -> None:
    """Return the batch of a step: its triples and negatives, and which of these are known."""
    triples = torch.stack([below(n, TRIPLES) for n in (ENTITIES, RELATIONS, ENTITIES)], 1).int()
    weight, clock = torch.ones(TRIPLES, device=DEVICE), torch.tensor(500, device=DEVICE)
    plan = BatchPlan(triples, weight, BATCH, NEGATIVES, ENTITIES, key(0, "order"), key(0, "negatives"))
    moved = (12 + 4) * BATCH + 8 * (2 * BATCH + NEGATIVES) + (8 + 4) * BATCH
    note = "judged: 8 hashes of 50 and 100 more a triple, which is the element"
    call = functools.partial(gpu.draw_batch, plan, 2, clock)
    bench.time("draw", (BATCH, NEGATIVES), call, {"issue": 500}, BATCH, moved, note)

    index = KnownTriples(triples, ENTITIES, RELATIONS).side("tail", torch.device(DEVICE))
    kept, relation, candidates = triples[:BATCH, 0].long(), triples[:BATCH, 1].long(), below(ENTITIES, 1, NEGATIVES)
    moved = size(kept, relation, candidates) + (8 + 16 + 4) * BATCH + BATCH * NEGATIVES
    note = f"judged: 10 a candidate; a pair of {len(index.pair_keys)} has {TRIPLES / len(index.pair_keys):.2f} members"
    call = functools.partial(gpu.known_mask, index, kept, relation, candidates, BATCH)
    bench.time("known_mask", (BATCH, NEGATIVES), call, {"issue": 10}, BATCH * NEGATIVES, moved, note)


def loss(bench: Bench) -> None:
    """Time the self-adversarial loss, forward and backward."""
    shape = (BATCH, NEGATIVES)
    positive, negative, weight = normal(BATCH), normal(*shape), torch.full((BATCH,), 1 / BATCH, device=DEVICE)
    known, one = torch.rand(*shape, device=DEVICE) < 0.01, torch.ones((), device=DEVICE)
    moved = 2 * size(positive, negative, known, weight) + size(positive, negative)

    def score(positive: Tensor, negative: Tensor) -> Tensor:
        return gpu.self_adversarial(positive, negative, known, weight, 6.0, 1.0)

    call = functools.partial(differentiate, score, (positive, negative), one)
    note = "judged: forward 16, 3 of them MUFU (two exponentials, a logarithm); backward 14, 3 of them MUFU"
    counts = {"issue": 30, "special": 6}
    bench.time("self_adversarial forward + backward", shape, call, counts, negative.numel(), moved, note)


def scores(bench: Bench) -> None:
    """PairRE's scores of a batch, forward and backward, and what of it is not the compare."""
    shape = (BATCH, NEGATIVES, DIM)
    entity, relation = normal(2 * BATCH + NEGATIVES, DIM), normal(BATCH, 2 * DIM)
    g_positive, g = normal(BATCH), normal(BATCH, NEGATIVES)
    q, w, c = normal(BATCH, DIM), normal(BATCH, DIM), normal(NEGATIVES, DIM)
    forward, backward, _ = COUNTS["l1"]
    counts, elements = both(forward, backward), math.prod(shape)

    def score(entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        return gpu.pairre_batch_scores(entity, relation, True)

    call = functools.partial(differentiate, score, (entity, relation), (g_positive, g))
    moved = 3 * size(entity, relation) + 2 * size(g_positive, g)
    note = "the whole, compare included; of the counts only that of the compare"
    whole = bench.time("pairre_scores forward + backward", shape, call, counts, elements, moved, note)

    def compare() -> None:
        native.shared_scores(q, w, c, None)
        native.shared_gradients(q, w, c, g)

    moved = 3 * size(q, w, c) + 2 * size(g)
    alone = bench.time("native scores + gradients l1", shape, compare, counts, elements, moved)
    if whole > alone:
        # Forward writes q, w, c and scores; backward reads c, four gradients and the rows again.
        moved = 3 * size(entity, relation) + size(q, w, c) + size(c, q, w, c) + 2 * size(g_positive)
        note = "the difference of the two lines before: pairre's own two kernels; an element is a feature of a positive"
        bench.record("pairre_scores less compare", shape, whole - alone, {"issue": 28}, BATCH * DIM, moved, note)


PARTS: dict[str, Callable[[Bench], None]] = {
    "native": native_shared,
    "l1": functools.partial(triton_shared, "l1"),
    "l2": functools.partial(triton_shared, "l2"),
    "modulus": functools.partial(triton_shared, "modulus"),
    "dot": functools.partial(triton_shared, "dot"),
    "forms": triton_forms,
    "weights": candidates_with_weights,
    "evaluation": evaluation,
    "entities": functools.partial(rows, "entity", 2 * BATCH + NEGATIVES, ENTITIES, DIM, MISSED),
    "relations": functools.partial(rows, "relation", BATCH, RELATIONS, 2 * DIM, 0),
    "batch": batch,
    "loss": loss,
    "scores": scores,
}


def compile_part(name: str) -> str:
    """Run a part once, so that its kernels lie in the caches; returns what went wrong."""
    try:
        PARTS[name](Bench(None))
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001
        return f"{name}: {error!r:.300s}"
    return ""


def main() -> None:
    """Measure the ceilings, then the parts that were asked for."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    parts = arguments.parts or list(PARTS)
    describe = machine.describe()
    started = time.perf_counter()
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as pool:
        try:
            for message in filter(None, pool.map(compile_part, parts)):
                print(message, flush=True)
        except Exception as error:  # noqa: BLE001
            print(f"not all kernels were compiled before: {error!r}", flush=True)
    print(f"compiled in {time.perf_counter() - started:.1f} s", flush=True)

    properties = torch.cuda.get_device_properties(DEVICE)
    torch.manual_seed(0)
    rep = 5 if arguments.quick else 20  # milliseconds of launches in a graph
    measured = ceilings(rep)
    bench = Bench({name: value["per_second"] for name, value in measured.items()}, rep)
    for name in parts:
        try:
            PARTS[name](bench)
        except Exception as error:  # noqa: BLE001
            bench.fail(name, (), error)
    chip = {
        "gpu": torch.cuda.get_device_name(DEVICE),
        "multiprocessors": properties.multi_processor_count,
        "l2_cache_bytes": properties.L2_cache_size,
    }
    result = {"machine": {**describe, **chip}, "ceilings": measured, "kernels": bench.kernels}
    print(f"{time.perf_counter() - started:.1f} s in all", flush=True)
    machine.write("roofline", result, arguments)


if __name__ == "__main__":
    main()
