"""Settings that training is tested with: every loss, optimiser, schedule and way of sharing negatives."""

VARIANTS = [
    [],
    ["sampling.chunk_size=1"],
    ["sampling.chunk_size=5"],
    ["sampling.negatives=0", "loss.name=cross-entropy"],
    ["loss.name=margin", "loss.margin=2"],
    ["loss.name=logistic"],
    ["train.optimizer=adagrad", "train.lr=0.3"],
    ["train.update_rows=touched"],
    ["train.schedule=step"],
    ["train.schedule=cosine", "train.warmup=20"],
    ["regularizer.name=n3", "regularizer.weight=1e-4"],
    ["regularizer.name=l2", "regularizer.weight=1e-4"],
    [
        *("model.name=distmult", "sampling.negatives=0"),
        *("loss.name=k-vs-all", "loss.subsampling=false", "loss.margin=0", "loss.smoothing=0.1"),
    ],
    ["model.name=complex", "model.reciprocal=true", "sampling.negatives=0", "loss.name=cross-entropy"],
    ["model.name=transh", "loss.margin=2", "train.lr=0.05"],
    ["model.name=kg2e", "loss.margin=0"],
]
