#!/bin/sh
# Copy the store while the service runs, check the copy, and thin out old ones.
#
#   backup.sh DATABASE DIRECTORY
#
# Keeps every copy from the last 9 days and, beyond that, one for each Sunday of the last 26 weeks.
# Uses SQLite's own .backup: copying the file with cp while the service writes gives you a
# file that opens, answers, and lies.
set -eu

database=${1:?usage: backup.sh DATABASE DIRECTORY}
directory=${2:?usage: backup.sh DATABASE DIRECTORY}
keep_days=9
keep_weeks=26

mkdir -p "$directory"
stamp=$(date -u +%Y%m%dT%H%M%SZ)
partial="$directory/.partial-$stamp.db"
final="$directory/tidemark-$stamp.db"

cleanup() {
    rm -f "$partial"
}
trap cleanup EXIT

sqlite3 "$database" ".timeout 10000" ".backup '$partial'"

verdict=$(sqlite3 "$partial" "PRAGMA integrity_check;")
if [ "$verdict" != "ok" ]; then
    echo "backup.sh: the copy failed its integrity check: $verdict" >&2
    exit 1
fi

rows=$(sqlite3 "$partial" "SELECT count(*) FROM reservations;")
mv "$partial" "$final"
echo "backup.sh: $final, $rows reservations"

today=$(date -u +%s)
for copy in "$directory"/tidemark-*.db; do
    [ -e "$copy" ] || continue
    name=$(basename "$copy" .db)
    day=${name#tidemark-}
    day=${day%%T*}
    year=$(echo "$day" | cut -c1-4)
    month=$(echo "$day" | cut -c5-6)
    date_of=$(echo "$day" | cut -c7-8)
    taken=$(date -u -d "$year-$month-$date_of" +%s)
    age=$(((today - taken) / 86400))
    weekday=$(date -u -d "$year-$month-$date_of" +%u)
    if [ "$age" -le "$keep_days" ]; then
        continue
    fi
    if [ "$weekday" -eq 7 ] && [ "$age" -le $((keep_weeks * 7)) ]; then
        continue
    fi
    rm -f "$copy"
    echo "backup.sh: thinned $copy"
done
