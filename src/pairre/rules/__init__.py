"""Rules between relations: which kinds there are, how files store them, and which of them the facts of a graph support.

The order in which relations that imply each other can be tied is decided here too; how a model is made to respect a
rule is decided in `training`.
"""

from pairre.rules.file import KINDS, Kind, Rule, read_rules, write_rules
from pairre.rules.mine import mine
from pairre.rules.order import Order, tie_order

__all__ = ["KINDS", "Kind", "Order", "Rule", "mine", "read_rules", "tie_order", "write_rules"]
