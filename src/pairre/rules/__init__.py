"""Rules between relations: files of them, and mining them from a graph."""

from pairre.rules.file import KINDS, Kind, Rule, read_rules, write_rules
from pairre.rules.mine import mine
from pairre.rules.order import Order, tie_order

__all__ = ["KINDS", "Kind", "Order", "Rule", "mine", "read_rules", "tie_order", "write_rules"]
