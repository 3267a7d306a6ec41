"""How much one request may ask for, and which functions may take seconds; both are known without loading torch."""

MAX_K, MAX_QUERIES, MAX_TRIPLES, MAX_ANSWERS = 1000, 1000, 1000, 20_000
MAX_PAGE, MAX_RESULTS, MAX_SUPPORT = 200, 100, 5
MAX_LIMIT, MAX_NODES = 500, 200
MAX_NAME = 8192  # characters of a name that is looked up
SLOW = frozenset({"why", "predict_many", "score"})  # functions that may take seconds
