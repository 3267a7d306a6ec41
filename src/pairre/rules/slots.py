"""Slots: what entities have in common. To have one is to have a fact of its relation, with its entity or with any.

N entities, R relations, F distinct facts in both directions, G groups, S slots.

Relation R + r is the inverse of relation r. A group is all facts of one entity and relation. Entities that have a fact
of q with o are the other entities in the group of o and the inverse of q: this slot is that group, and no list of its
members is stored a second time. Only groups of two facts or more are slots: one entity alone supports no rule. The
slots after these, S in all, are the 2R relations: a fact with any entity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Slots(NamedTuple):
    """Distinct facts in both directions, sorted by entity, relation and other entity."""

    entity_start: np.ndarray  # [N + 1] offset of each entity in the groups
    relation: np.ndarray  # [G] of each group
    group_start: np.ndarray  # [G + 1] offset of each group in the next two
    other: np.ndarray  # [F] the other entity
    slot: np.ndarray  # [F] the slot that a fact gives its entity, −1 if nobody shares it
    group: np.ndarray  # [S − 2R] the group of each slot
    domain_start: np.ndarray  # [2R + 1] offset of each relation in the next one
    domain: np.ndarray  # [G] entities that have facts of a relation

    @classmethod
    def build(cls, triples: np.ndarray, num_entities: int, num_relations: int) -> Slots:
        """Return the slots of distinct triples [·, 3]."""
        head, relation, tail = triples.astype(np.int32).T
        entities, others = np.concatenate([head, tail]), np.concatenate([tail, head])
        relations = np.concatenate([relation, relation + num_relations])
        order = np.lexsort((others, relations, entities))
        entities, relations, others = entities[order], relations[order], others[order]
        new = np.ones(len(order), np.bool_)
        new[1:] = (entities[1:] != entities[:-1]) | (relations[1:] != relations[:-1])
        first = np.flatnonzero(new)
        group_start = np.append(first, len(order))
        shared = np.diff(group_start) > 1
        number = np.where(shared, np.cumsum(shared) - 1, -1)[np.cumsum(new) - 1]  # of the slot that is a fact's group
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        slot = number[place[(order + len(triples)) % max(1, len(order))]]
        by_relation = np.argsort(relations[first], kind="stable")
        return cls(
            np.searchsorted(entities[first], np.arange(num_entities + 1)),
            relations[first],
            group_start,
            others,
            slot.astype(np.int32),
            np.flatnonzero(shared),
            np.searchsorted(relations[first][by_relation], np.arange(2 * num_relations + 1)),
            entities[first][by_relation],
        )

    @property
    def num(self) -> int:
        """The number of slots."""
        return len(self.group) + len(self.domain_start) - 1
