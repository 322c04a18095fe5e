"""The harbour: everything the outside may ask for, in one class.

The HTTP interface and the command line both call :class:`Harbour` and nothing deeper, so a rule
enforced here is enforced everywhere. Each method that changes something does so in one store
transaction, notification included.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from tidemark import billing, ical
from tidemark.allocator import Allocator, Policy, occupancy
from tidemark.billing import Quote, Tariffs
from tidemark.clock import Clock, Interval, clock_from_environment, format_instant
from tidemark.config import Settings
from tidemark.errors import HoldExpired
from tidemark.gauge_client import GaugeClient
from tidemark.model import Priority, Reservation, State, StayRequest, Vessel
from tidemark.notify import Dispatcher, Notifier, QuietHours, webhook_sender
from tidemark.stations import Catalogue
from tidemark.store import Invoice, Store
from tidemark.surge import CorrectedSource, estimate_residual
from tidemark.tables import DayTable, table
from tidemark.tides import TideSource
from tidemark.windows import arrival_windows, depth_windows

log = logging.getLogger("tidemark.service")

#: A residual at least this large is worth a surge warning to the office.
SURGE_WARNING_M = 0.7

#: Letters and digits that survive being read out over a radio: no I, L, O, 0 or 1.
_ID_ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"


def new_id() -> str:
    return "R-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(8))


class Harbour:
    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        tariffs: Tariffs,
        store: Store,
        clock: Clock,
        gauge: GaugeClient | None = None,
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.tariffs = tariffs
        self.store = store
        self.clock = clock
        self.gauge = gauge
        quiet = QuietHours.parse(settings.notify.quiet_from, settings.notify.quiet_until)
        self.notifier = Notifier(store, quiet)
        self._policy = Policy(
            turnaround=timedelta(minutes=settings.berths.turnaround_minutes),
            max_stay=timedelta(days=settings.berths.max_stay_days),
            arrival_slack=timedelta(hours=settings.berths.arrival_slack_hours),
        )

    @classmethod
    def open(cls, settings: Settings, root: Path) -> Harbour:
        """Assemble the real thing from configuration. Does not migrate the store."""
        gauge = None
        if settings.gauge.enabled:
            gauge = GaugeClient(
                settings.gauge.base_url,
                timeout_s=settings.gauge.timeout_s,
                policy=settings.retry.policy(),
            )
        return cls(
            settings,
            Catalogue.from_toml(root / settings.service.stations_file),
            Tariffs.from_toml(root / settings.service.tariffs_file),
            Store(root / settings.store.path, settings.store.busy_timeout_ms),
            clock_from_environment(profile=settings.service.profile),
            gauge,
        )

    # --- tides --------------------------------------------------------------------------------

    def tide_table(self, station_id: str, first: date, days: int) -> list[DayTable]:
        """Published figures: prediction only, whatever the weather."""
        station = self.catalogue.get(station_id)
        return table(station, self.catalogue.source(station_id), first, days)

    def working_source(self, station_id: str) -> TideSource:
        """Prediction plus the current residual, for decisions about berthing."""
        station = self.catalogue.get(station_id)
        source = self.catalogue.source(station_id)
        if self.gauge is None:
            return source
        now = self.clock.now()
        residual = estimate_residual(source, self.gauge.latest_or_nothing(station.gauge), now)
        if residual is None:
            return source
        if abs(residual.offset_m) >= SURGE_WARNING_M:
            self.notifier.raise_event(
                "surge_warning", station.id, {"offset_m": round(residual.offset_m, 2)}, now
            )
        return CorrectedSource(source, residual)

    def windows(self, station_id: str, span: Interval, required_m: float) -> list[Interval]:
        return depth_windows(self.working_source(station_id), span, required_m)

    # --- reservations -------------------------------------------------------------------------

    def quote(self, vessel: Vessel, berth_code: str, stay: Interval, power: bool) -> Quote:
        rules = self.settings.billing
        return billing.quote(
            self.tariffs,
            vessel,
            self.store.berth(berth_code),
            stay,
            power=power,
            vat_percent=rules.vat_percent,
            grace=timedelta(minutes=rules.grace_minutes),
            minimum_loa_m=rules.minimum_loa_m,
        )

    def hold(
        self,
        vessel_id: str,
        stay: Interval,
        *,
        priority: Priority = Priority.VISITOR,
        power_amps: int = 0,
        notes: str = "",
    ) -> Reservation:
        """Choose a berth and keep it for ``berths.hold_minutes``.

        Raises NoBerth, SillClosed or TariffMissing; in every case nothing is written.
        """
        now = self.clock.now()
        vessel = self.store.vessel(vessel_id)
        request = StayRequest(vessel, stay, priority, power_amps, notes)
        # Ask the gauge before taking the write lock; it may be slow to answer.
        source = self.working_source(self.settings.service.home_station)
        with self.store.transaction():
            self._expire(now)
            nearby = self.store.occupying(stay.widen(timedelta(days=1)))
            allocator = Allocator(self.store.berths(), nearby, source, self._policy)
            assignment = allocator.allocate(request)
            price = self.quote(vessel, assignment.berth.code, stay, power_amps > 0)
            reservation = Reservation(
                id=new_id(),
                vessel_id=vessel.id,
                berth_code=assignment.berth.code,
                stay=stay,
                state=State.HELD,
                priority=priority,
                version=1,
                created_at=now,
                held_until=now + timedelta(minutes=self.settings.berths.hold_minutes),
                price_pence=price.gross_pence,
                notes=notes,
            )
            self.store.insert_reservation(reservation)
        log.info(
            "held %s for %s", reservation.berth_code, vessel.name, extra={"score": assignment.score}
        )
        return reservation

    def confirm(self, reservation_id: str) -> Reservation:
        """Turn a hold into a booking. A lapsed hold is expired on the spot and refused."""
        now = self.clock.now()
        reservation = self.store.reservation(reservation_id)
        if reservation.lapsed(now):
            with self.store.transaction():
                self._expire(now)
            raise HoldExpired(f"the hold {reservation_id} has lapsed; ask for a new one")
        if reservation.state is State.EXPIRED:
            raise HoldExpired(f"the hold {reservation_id} has lapsed; ask for a new one")
        with self.store.transaction():
            confirmed = self.store.transition(reservation, State.CONFIRMED)
            self._tell("reservation_confirmed", confirmed, now)
        return confirmed

    def cancel(self, reservation_id: str) -> tuple[Reservation, int]:
        """Give up a hold or a booking; the reservation and the pence owed."""
        now = self.clock.now()
        reservation = self.store.reservation(reservation_id)
        owed = billing.cancellation_charge(reservation, now)
        with self.store.transaction():
            cancelled = self.store.transition(reservation, State.CANCELLED)
            self._tell("reservation_cancelled", cancelled, now, owed_pence=owed)
        return cancelled, owed

    def revoke(self, reservation_id: str, reason: str) -> Reservation:
        """The harbour takes the berth back. Never charged, always explained."""
        now = self.clock.now()
        reservation = self.store.reservation(reservation_id)
        with self.store.transaction():
            cancelled = self.store.transition(reservation, State.CANCELLED)
            self._tell("berth_revoked", cancelled, now, reason=reason)
        return cancelled

    def record(self, reservation_id: str, state: State) -> Reservation:
        """Arrived, departed or no-show, as seen from the office window."""
        reservation = self.store.reservation(reservation_id)
        with self.store.transaction():
            moved = self.store.transition(reservation, state)
            if state is State.DEPARTED:
                self._issue_invoice(moved)
        return moved

    def sweep(self) -> int:
        """Expire lapsed holds; how many there were. Run every minute by ``tidemark serve``."""
        with self.store.transaction():
            return self._expire(self.clock.now())

    def _expire(self, now: datetime) -> int:
        lapsed = self.store.lapsed_holds(now)
        for reservation in lapsed:
            expired = self.store.transition(reservation, State.EXPIRED)
            self._tell("hold_expired", expired, now)
        return len(lapsed)

    def _tell(self, event: str, reservation: Reservation, now: datetime, **more: Any) -> None:
        payload = {**reservation.as_dict(), **more}
        self.notifier.raise_event(event, reservation.id, payload, now)

    # --- paper --------------------------------------------------------------------------------

    def _issue_invoice(self, reservation: Reservation) -> Invoice:
        now = self.clock.now()
        vessel = self.store.vessel(reservation.vessel_id)
        # They pay for the time they had, not the time they asked for. Power is left out: the office
        # adds it from the meter on the pedestal.
        stayed = replace(reservation.stay, end=max(now, reservation.stay.start))
        price = self.quote(vessel, reservation.berth_code, stayed, power=False)
        invoice = Invoice(
            number=self.store.next_invoice_number(now.year),
            reservation_id=reservation.id,
            lines=[line.as_dict() for line in price.lines],
            net_pence=price.net_pence,
            vat_pence=price.vat_pence,
            issued_at=now,
        )
        self.store.put_invoice(invoice)
        self._tell("invoice_ready", reservation, now, invoice=invoice.number)
        return invoice

    def calendar(self, reservation_id: str) -> str:
        reservation = self.store.reservation(reservation_id)
        vessel = self.store.vessel(reservation.vessel_id)
        berth = self.store.berth(reservation.berth_code)
        source = self.catalogue.source(self.settings.service.home_station)
        slack = reservation.stay.start + self._policy.arrival_slack
        span = Interval(reservation.stay.start, min(slack, reservation.stay.end))
        windows = arrival_windows(source, vessel, berth, span)
        return ical.stay_calendar(reservation, vessel, berth, windows, self.clock.now())

    def occupancy(self, span: Interval) -> float:
        return occupancy(self.store.berths(), self.store.occupying(span), span)

    def deliver(self) -> tuple[int, int]:
        """Push out what is due; (delivered, failed). Without a webhook, messages wait."""
        settings = self.settings.notify
        if not settings.webhook_url:
            return 0, 0
        dispatcher = Dispatcher(
            self.store,
            webhook_sender(settings.webhook_url),
            settings.signing_key,
            settings.max_failures,
        )
        return dispatcher.run_once(self.clock.now())

    def health(self) -> dict[str, Any]:
        return {
            "status": "ok",
            "at": format_instant(self.clock.now()),
            "stations": len(self.catalogue),
            "dead_letters": self.store.dead_letters(),
        }
