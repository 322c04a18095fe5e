-- First schema. Times are ISO 8601 text in UTC (decision 0002), lengths as the paper forms had
-- them: feet for length overall, metres for everything else.

CREATE TABLE berths (
    code            TEXT PRIMARY KEY,
    length_m        REAL NOT NULL CHECK (length_m > 0),
    max_beam_m      REAL NOT NULL CHECK (max_beam_m > 0),
    charted_depth_m REAL NOT NULL,
    kind            TEXT NOT NULL DEFAULT 'pontoon'
                    CHECK (kind IN ('pontoon', 'quay', 'mooring', 'drying')),
    sill_m          REAL,
    exposed         INTEGER NOT NULL DEFAULT 0,
    power_amps      INTEGER NOT NULL DEFAULT 0,
    tariff_class    TEXT NOT NULL DEFAULT 'pontoon'
);

CREATE TABLE boats (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    loa_ft        REAL NOT NULL CHECK (loa_ft > 0),
    beam_m        REAL NOT NULL CHECK (beam_m > 0),
    draught_m     REAL NOT NULL CHECK (draught_m >= 0),
    hulls         INTEGER NOT NULL DEFAULT 1,
    skipper_phone TEXT NOT NULL DEFAULT ''
);

CREATE TABLE reservations (
    id         TEXT PRIMARY KEY,
    boat_id    TEXT NOT NULL REFERENCES boats (id),
    berth_code TEXT NOT NULL REFERENCES berths (code),
    arrives_at TEXT NOT NULL,
    departs_at TEXT NOT NULL,
    state      TEXT NOT NULL,
    priority   INTEGER NOT NULL DEFAULT 4,
    version    INTEGER NOT NULL DEFAULT 1,
    held_until TEXT,
    price_pence INTEGER NOT NULL DEFAULT 0,
    notes      TEXT NOT NULL DEFAULT '',
    created_at TEXT NOT NULL,
    CHECK (departs_at > arrives_at)
);

CREATE INDEX reservations_by_berth ON reservations (berth_code, arrives_at);
