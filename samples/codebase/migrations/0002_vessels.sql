-- Fishing and pilot craft object to being called boats, and a phone number without a country code
-- reached the wrong skipper twice in one season. Numbers already present are assumed to be
-- national ones; the office corrected the eleven foreign ones by hand afterwards.

ALTER TABLE boats RENAME TO vessels;

ALTER TABLE reservations RENAME COLUMN boat_id TO vessel_id;

ALTER TABLE vessels RENAME COLUMN skipper_phone TO contact_e164;

UPDATE vessels
   SET contact_e164 = '+44' || substr(replace(contact_e164, ' ', ''), 2)
 WHERE contact_e164 LIKE '0%';

-- Length overall joins the metric columns. The table CHECK travels with the renamed column.
ALTER TABLE vessels RENAME COLUMN loa_ft TO loa_m;

UPDATE vessels SET loa_m = round(loa_m * 0.3048, 2);
