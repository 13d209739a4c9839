#!/usr/bin/env bash
# Runs the dissectors over conformance/pcap and compares every field of every packet with the expected text.
# check.sh --bless writes the expected text anew.
set -euo pipefail
export LC_ALL=C TZ=UTC
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v tshark >/dev/null; then
    echo "SKIPPED: the Wireshark dissectors are not tested: tshark is not installed"
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The user's own preferences and plugins stay out of it.
export WIRESHARK_CONFIG_DIR="$scratch/config"
mkdir "$WIRESHARK_CONFIG_DIR"

run() { tshark "$@" -X lua_script:tools/wireshark/r2p2.lua -X lua_script:tools/wireshark/homa.lua -X lua_script:tools/wireshark/netclone.lua 2>"$scratch/errors"; }

die() {
    echo "$1" >&2
    cat "$scratch/errors" >&2
    exit 1
}

# Every field that the dissectors register, in the order of the header; presence alone (FT_NONE) is not a value.
run -G fields | awk -F'\t' '$1 == "F" && ($5 == "r2p2" || $5 == "homa" || $5 == "netclone") && $4 != "FT_NONE" { print $3 }' >"$scratch/fields" ||
    die "tshark does not list the dissectors' fields"
for protocol in r2p2 homa netclone; do
    grep -q "^$protocol\." "$scratch/fields" || die "tshark did not load the dissector of $protocol"
done

# A line a field, empty ones left out, long payloads cut; newer versions print True and False for 1 and 0. What other dissectors
# complain of is left out with their packets.
dissect() {
    local -a columns=(-e frame.number)
    while read -r field; do columns+=(-e "$field"); done <"$scratch/fields"
    run -r "$1" -T fields -E header=y -E separator=/t -E occurrence=a "${columns[@]}" -e _ws.expert.message |
        awk -F'\t' '
            NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; next }
            {
                ours = 0
                for (i = 1; i <= NF; i++) {
                    if (name[i] ~ /\.summary$/ && $i != "") ours = 1
                    if ($i == "" || name[i] == "_ws.expert.message" && !ours) continue
                    value = $i == "True" ? 1 : $i == "False" ? 0 : $i
                    if (name[i] ~ /^(r2p2|homa|netclone)\.payload$/ && length(value) > 32) value = substr(value, 1, 32) "..."
                    print (i == 1 ? "" : "  ") name[i] " " value
                }
            }'
}

status=0
for capture in conformance/pcap/*.pcap; do
    expected="${capture%.pcap}.expected.txt"
    dissect "$capture" >"$scratch/found" || die "$capture: tshark failed"
    if [ "${1-}" = --bless ]; then
        cp "$scratch/found" "$expected"
        echo "wrote $expected"
    elif diff -u "$expected" "$scratch/found" >"$scratch/difference"; then
        echo "ok $capture"
    else
        cat "$scratch/difference"
        echo "DIFFERENT $capture" >&2
        status=1
    fi
done

# How many packets of a capture a display filter must find.
expect_count() {
    local wanted=$1 count
    shift
    count=$(run -r "$@" | wc -l)
    if [ "$count" -ne "$wanted" ]; then
        echo "DIFFERENT: $count packets instead of $wanted: $*" >&2
        status=1
    fi
}

# The port preferences: what says too little by itself is known once the port is.
expect_count 1 conformance/pcap/other-ports.pcap -o r2p2.ports:7777 -Y r2p2.feedback_v1.rid==2
expect_count 1 conformance/pcap/homa-other-ports.pcap -o homa.ports:7777 -Y homa.stripped

# What Homa's dissector leaves to TCP's; and without it, every frame in disguise is a segment of TCP whose checksum is right.
expect_count 3 conformance/pcap/homa-tcp.pcap -Y 'tcp && !homa'
segments=$(tshark -r conformance/pcap/homa-tcp.pcap -o tcp.check_checksum:TRUE -T fields -e tcp.checksum.status 2>"$scratch/errors")
if grep -qvx 1 <<<"$segments"; then
    echo "DIFFERENT: tshark finds wrong checksums of TCP in homa-tcp.pcap" >&2
    status=1
fi
exit "$status"
