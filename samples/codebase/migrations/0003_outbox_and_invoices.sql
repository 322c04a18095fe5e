-- Notifications leave through an outbox written in the same transaction as the change they tell
-- of, so neither can exist without the other.

CREATE TABLE outbox (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    event        TEXT NOT NULL,
    subject      TEXT NOT NULL,
    payload      TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    not_before   INTEGER NOT NULL,
    failures     INTEGER NOT NULL DEFAULT 0,
    delivered_at INTEGER,
    dead         INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX outbox_due ON outbox (not_before) WHERE delivered_at IS NULL AND dead = 0;

CREATE TABLE invoices (
    number         TEXT PRIMARY KEY,
    reservation_id TEXT NOT NULL UNIQUE REFERENCES reservations (id),
    lines          TEXT NOT NULL,
    net_pence      INTEGER NOT NULL,
    vat_pence      INTEGER NOT NULL,
    issued_at      INTEGER NOT NULL,
    exported_at    INTEGER
);
