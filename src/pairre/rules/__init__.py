"""Rules between relations: which kinds there are, how files store them, and which of them the facts of a graph support.

The order in which relations that imply each other can be tied is decided here too; how a model is made to respect a
rule is decided in `training`.
"""

from pairre.rules.apply import Implied, RuleBook, apply_rules
from pairre.rules.file import KINDS, Kind, Rule, read_rules, write_rules
from pairre.rules.mine import measure_pair, mine
from pairre.rules.order import Order, tie_order

__all__ = [
    "KINDS",
    "Implied",
    "Kind",
    "Order",
    "Rule",
    "RuleBook",
    "apply_rules",
    "measure_pair",
    "mine",
    "read_rules",
    "tie_order",
    "write_rules",
]
