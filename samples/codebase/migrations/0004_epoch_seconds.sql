-- Decision 0005: instants become whole seconds since 1970. SQLite cannot change a column's type,
-- so the table is rebuilt. Text that strftime cannot read would become NULL and fail NOT NULL,
-- which is what we want: better no migration than a reservation at the epoch.

CREATE TABLE reservations_new (
    id          TEXT PRIMARY KEY,
    vessel_id   TEXT NOT NULL REFERENCES vessels (id),
    berth_code  TEXT NOT NULL REFERENCES berths (code),
    arrives_at  INTEGER NOT NULL,
    departs_at  INTEGER NOT NULL,
    state       TEXT NOT NULL,
    priority    INTEGER NOT NULL DEFAULT 4,
    version     INTEGER NOT NULL DEFAULT 1,
    held_until  INTEGER,
    price_pence INTEGER NOT NULL DEFAULT 0,
    notes       TEXT NOT NULL DEFAULT '',
    created_at  INTEGER NOT NULL,
    CHECK (departs_at > arrives_at)
);

INSERT INTO reservations_new
SELECT id, vessel_id, berth_code,
       CAST(strftime('%s', arrives_at) AS INTEGER),
       CAST(strftime('%s', departs_at) AS INTEGER),
       state, priority, version,
       CAST(strftime('%s', held_until) AS INTEGER),
       price_pence, notes,
       CAST(strftime('%s', created_at) AS INTEGER)
  FROM reservations;

DROP TABLE reservations;

ALTER TABLE reservations_new RENAME TO reservations;

CREATE INDEX reservations_by_berth ON reservations (berth_code, arrives_at);

CREATE INDEX reservations_by_hold ON reservations (held_until) WHERE state = 'held';
