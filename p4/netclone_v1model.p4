/* NetClone's switch (SIGCOMM'23) for v1model (bmv2), as its published program: in the path of requests and of
 * responses, so it rewrites destinations and leaves sources. crates/proto/src/netclone decides the same.
 *
 * A clone is the second replica of a multicast group, which the egress tells by its id: v1model needs no
 * recirculation for it. `tailcut route --emit p4` writes the entries, groups and registers. */
#include <core.p4>
#include <v1model.p4>

#include "packets.p4"

/* Cells of each of the filter's tables. */
#define FILTER_LEN 131072

/* Indexes of `settings`. */
#define FALLBACK 0
#define FILTER_MASK 1

/* In `settings`: what is not cloned goes to the one where less wait (RackSched), and not to the first. */
#define SHORTER 1

/* Of the replica that is the clone; the original's is 1. */
#define CLONE 2

/* Indexes of `counts`. */
#define PLACED 0
#define CLONED 1
#define UNKNOWN_GROUP 2
#define REPLIES_FORWARDED 3
#define FORWARDED 4
#define DROP_FILTERED 5
#define DROP_MALFORMED 6
#define DROP_NO_SERVER 7
#define DROP_NO_WAY 8
#define DROP_OTHERS 9
#define COUNTS_LEN 10

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    netclone_header_t netclone;
}

struct metadata_t {
    bit<32> first;
    bit<32> second;
    bit<16> group;
    bit<32> chosen;
    /* It goes where its destination says, counted so. */
    bit<1> is_forwarded;
    bit<32> forwarded_as;
}

parser parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version_ihl, hdr.ipv4.fragment & 0x3fff, hdr.ipv4.protocol) {
            (0x45, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination, hdr.udp.source) {
            (NETCLONE_PORT, _): netclone;
            (_, NETCLONE_PORT): netclone;
            default: accept;
        }
    }
    state netclone {
        packet.extract(hdr.netclone);
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(2) settings;
    /* The last id. */
    register<bit<32>>(1) seq;
    /* What waits at each server, as it has reported last. */
    register<bit<32>>(NETCLONE_SERVERS_MAX) loads;
    /* Ids that wait for their second response. */
    register<bit<32>>(FILTER_LEN) filter_0;
    register<bit<32>>(FILTER_LEN) filter_1;
    counter(COUNTS_LEN, CounterType.packets) counts;

    action none() {}

    action drop(bit<32> reason) {
        counts.count(reason);
        mark_to_drop(standard);
    }

    action pair(bit<32> first, bit<32> second, bit<16> group) {
        meta.first = first;
        meta.second = second;
        meta.group = group;
    }
    /* The ordered pair that a client has drawn, and its multicast group. */
    table groups {
        key = { hdr.netclone.grp: exact; }
        actions = { pair; }
        default_action = pair(0, 1, 1);
        size = 256;
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }
    /* The port of a server. */
    table ports {
        key = { meta.chosen: exact; }
        actions = { to_port; none; }
        default_action = none();
        size = NETCLONE_SERVERS_MAX;
    }

    action way(bit<48> mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        standard.egress_spec = port;
    }
    /* Where responses go, and whatever else passes. */
    table forward {
        key = { hdr.ipv4.destination: lpm; }
        actions = { way; none; }
        default_action = none();
        size = 1024;
    }

    apply {
        if (hdr.netclone.isValid() && hdr.udp.destination == NETCLONE_PORT
                && hdr.netclone.op == NETCLONE_OP_REQUEST && hdr.netclone.clo <= NETCLONE_CLONE_MARK_CLONE) @atomic {
            bit<32> id;
            bit<32> first_load;
            bit<32> second_load;
            bit<32> fallback;
            seq.read(id, 0);
            if (id >= NETCLONE_SEQ_MAX) {
                id = 1;
            } else {
                id = id + 1;
            }
            seq.write(0, id);
            hdr.netclone.seq = id;
            /* Over IPv4, 0 says that there is none. */
            hdr.udp.checksum = 0;
            if (!groups.apply().hit) {
                counts.count(UNKNOWN_GROUP);
            }
            loads.read(first_load, meta.first);
            loads.read(second_load, meta.second);
            settings.read(fallback, FALLBACK);
            hdr.netclone.clo = NETCLONE_CLONE_MARK_SINGLE;
            meta.chosen = meta.first;
            if (meta.first != meta.second && first_load == 0 && second_load == 0) {
                hdr.netclone.clo = NETCLONE_CLONE_MARK_ORIGINAL;
                hdr.netclone.sid = meta.second;
                standard.mcast_grp = meta.group;
                counts.count(CLONED);
                counts.count(PLACED);
            } else {
                if (fallback == SHORTER && first_load > second_load) {
                    meta.chosen = meta.second;
                }
                if (ports.apply().hit) {
                    counts.count(PLACED);
                } else {
                    drop(DROP_NO_SERVER);
                }
            }
        } else if (hdr.netclone.isValid() && hdr.udp.source == NETCLONE_PORT
                && hdr.netclone.op == NETCLONE_OP_RESPONSE && hdr.netclone.sid < NETCLONE_SERVERS_MAX
                && hdr.netclone.clo <= NETCLONE_CLONE_MARK_CLONE) @atomic {
            bit<32> mask;
            bit<32> cell;
            bit<32> next_cell;
            bit<1> is_slower = 0;
            hdr.udp.checksum = 0;
            /* Also of a response that is dropped below. */
            loads.write(hdr.netclone.sid, hdr.netclone.load);
            if (hdr.netclone.clo != NETCLONE_CLONE_MARK_SINGLE) {
                settings.read(mask, FILTER_MASK);
                bit<32> place = hdr.netclone.seq & mask & (FILTER_LEN - 1);
                if (hdr.netclone.tidx & 1 == 0) {
                    filter_0.read(cell, place);
                } else {
                    filter_1.read(cell, place);
                }
                next_cell = hdr.netclone.seq;
                if (cell == hdr.netclone.seq) {
                    is_slower = 1;
                    next_cell = 0;
                }
                if (hdr.netclone.tidx & 1 == 0) {
                    filter_0.write(place, next_cell);
                } else {
                    filter_1.write(place, next_cell);
                }
            }
            if (is_slower == 1) {
                drop(DROP_FILTERED);
            } else {
                meta.is_forwarded = 1;
                meta.forwarded_as = REPLIES_FORWARDED;
            }
        } else if (hdr.udp.isValid() && (hdr.udp.destination == NETCLONE_PORT || hdr.udp.source == NETCLONE_PORT)) {
            drop(DROP_MALFORMED);
        } else if (!hdr.ipv4.isValid()) {
            drop(DROP_OTHERS);
        } else {
            meta.is_forwarded = 1;
            meta.forwarded_as = FORWARDED;
        }
        if (meta.is_forwarded == 1) {
            if (forward.apply().hit) {
                counts.count(meta.forwarded_as);
            } else {
                drop(DROP_NO_WAY);
            }
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action none() {}

    action address(bit<32> ip, bit<48> mac) {
        hdr.ipv4.destination = ip;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
    }
    /* The address of a server. */
    table addresses {
        key = { meta.chosen: exact; }
        actions = { address; none; }
        default_action = none();
        size = NETCLONE_SERVERS_MAX;
    }

    apply {
        if (hdr.netclone.isValid() && hdr.netclone.op == NETCLONE_OP_REQUEST) {
            if (standard.egress_rid == CLONE) {
                hdr.netclone.clo = NETCLONE_CLONE_MARK_CLONE;
                meta.chosen = meta.second;
            }
            addresses.apply();
        }
    }
}

control compute_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.version_ihl == 0x45,
            { hdr.ipv4.version_ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.fragment, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(parse(), verify_checksums(), ingress(), egress(), compute_checksums(), deparse()) main;
