#!/bin/sh
# Ask a running service the questions a harbour asks every morning, and stop at the first wrong
# answer. Run it after every deployment; it changes nothing.
#
#   smoke.sh BASE_URL [TOKEN]
set -eu

base=${1:?usage: smoke.sh BASE_URL [TOKEN]}
token=${2:-}
today=$(date -u +%Y-%m-%d)
failures=0

get() {
    if [ -n "$token" ]; then
        curl --silent --show-error --max-time 9 -H "Authorization: Bearer $token" "$base$1"
    else
        curl --silent --show-error --max-time 9 "$base$1"
    fi
}

expect() {
    path=$1
    wanted=$2
    answer=$(get "$path" || true)
    case $answer in
    *"$wanted"*)
        echo "ok    $path"
        ;;
    *)
        echo "WRONG $path: expected $wanted" >&2
        echo "      got $(printf '%s' "$answer" | cut -c1-200)" >&2
        failures=$((failures + 1))
        ;;
    esac
}

expect "/v1/health" '"status":"ok"'
expect "/v1/stations" '"kelwick-bar"'
expect "/v1/stations/kelwick-bar/tides?from=$today&days=1" '"kind":"HW"'
expect "/v1/stations/atlantis" '"TM2001"'
expect "/v1/stations/saltmere/tides?from=$today&days=900" '"TM2002"'
expect "/v1/berths" '"berths"'

if [ "$failures" -gt 0 ]; then
    echo "smoke.sh: $failures wrong" >&2
    exit 1
fi
echo "smoke.sh: all well"
