"""The nouns of berth scheduling, without any behaviour that needs a database or a tide."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

from tidemark.clock import Interval, format_instant
from tidemark.errors import BadRequest, IllegalTransition


class Priority(IntEnum):
    """Lower goes first when requests compete in one planning run."""

    LIFEBOAT = 0
    PILOT = 1
    FISHING = 2
    COMMERCIAL = 3
    VISITOR = 4


class BerthKind(StrEnum):
    PONTOON = "pontoon"
    QUAY = "quay"
    MOORING = "mooring"
    DRYING = "drying"


class State(StrEnum):
    HELD = "held"
    CONFIRMED = "confirmed"
    ARRIVED = "arrived"
    DEPARTED = "departed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    NO_SHOW = "no_show"


#: Which state may follow which. Absent pairs raise IllegalTransition.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.HELD: frozenset({State.CONFIRMED, State.CANCELLED, State.EXPIRED}),
    State.CONFIRMED: frozenset({State.ARRIVED, State.CANCELLED, State.NO_SHOW}),
    State.ARRIVED: frozenset({State.DEPARTED}),
    State.DEPARTED: frozenset(),
    State.CANCELLED: frozenset(),
    State.EXPIRED: frozenset(),
    State.NO_SHOW: frozenset({State.ARRIVED}),  # they turn up after all, cold and sorry
}

#: States in which a reservation keeps others out of its berth.
OCCUPYING = frozenset({State.HELD, State.CONFIRMED, State.ARRIVED})


def check_transition(before: State, after: State) -> None:
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(
            f"a {before} reservation cannot become {after}",
            allowed=sorted(TRANSITIONS[before]),
        )


@dataclass(frozen=True)
class Vessel:
    """``draught_m`` is at rest, fully laden; ``hulls`` is 1, 2 or 3."""

    id: str
    name: str
    loa_m: float
    beam_m: float
    draught_m: float
    hulls: int = 1
    contact_e164: str = ""

    def __post_init__(self) -> None:
        if min(self.loa_m, self.beam_m) <= 0 or self.draught_m < 0:
            raise BadRequest(f"{self.name} has impossible dimensions")
        if self.hulls not in (1, 2, 3):
            raise BadRequest(f"{self.name} claims {self.hulls} hulls")
        if self.contact_e164 and not self.contact_e164.startswith("+"):
            raise BadRequest("contact_e164 starts with + and the country code")

    @property
    def is_multihull(self) -> bool:
        return self.hulls > 1


@dataclass(frozen=True)
class Berth:
    """A place to lie.

    ``charted_depth_m`` is depth below chart datum (negative where it dries). ``sill_m``, if any,
    is the height above chart datum of the sill on the way in.
    """

    code: str
    length_m: float
    max_beam_m: float
    charted_depth_m: float
    kind: BerthKind = BerthKind.PONTOON
    sill_m: float | None = None
    exposed: bool = False
    power_amps: int = 0
    tariff_class: str = "pontoon"


@dataclass(frozen=True)
class StayRequest:
    vessel: Vessel
    stay: Interval
    priority: Priority = Priority.VISITOR
    power_amps: int = 0
    notes: str = ""


@dataclass(frozen=True)
class Reservation:
    """A row of the store. ``version`` grows by one with every write."""

    id: str
    vessel_id: str
    berth_code: str
    stay: Interval
    state: State
    priority: Priority
    version: int
    created_at: datetime
    held_until: datetime | None = None
    price_pence: int = 0
    notes: str = ""

    def lapsed(self, now: datetime) -> bool:
        """A hold whose time is up, whether or not the sweeper has got to it."""
        return self.state is State.HELD and self.held_until is not None and now >= self.held_until

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "vessel": self.vessel_id,
            "berth": self.berth_code,
            "arrives": format_instant(self.stay.start),
            "departs": format_instant(self.stay.end),
            "state": self.state.value,
            "priority": self.priority.name.lower(),
            "version": self.version,
            "held_until": format_instant(self.held_until) if self.held_until else None,
            "price_pence": self.price_pence,
            "notes": self.notes,
        }
