/* The R2P2 router, jbsq:N, for v1model (bmv2): places requests of one packet, takes the servers' FEEDBACK, and
 * recirculates a request for which no server has room.
 *
 * The policy is crates/placement/src/policy/jbsq.rs: the fewest outstanding below the bound, of several the first in the
 * circle that begins after the last placement. outstanding = placed - base, base = seen - (received - concluded), as
 * in ebpf/router.h. What it cannot place alone goes to the port of the user-space router, as with XDP.
 *
 * `tailcut route --emit p4` writes the entries of its tables. */
#include <core.p4>
#include <v1model.p4>

#include "packets.p4"

#define SERVERS_MAX 32
#define FEEDBACK_LEN 64

/* Indexes of `settings`. */
#define BOUND 0
#define LEN 1
#define ROUNDS_MAX 2
#define AT_SERVER_MAX 3
#define IN_FLIGHT_MAX 4

/* Indexes of `counts`. */
#define PLACED 0
#define FEEDBACK_TAKEN 1
#define RECIRCULATED 2
#define UP_FULL 3
#define UP_OPTIONS 4
#define UP_FEEDBACK 5
#define FORWARDED 6
#define DROP_STRANGER 7
#define DROP_NO_WAY 8
#define DROP_OTHERS 9
#define COUNTS_LEN 10

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    r2p2_base_header_t base;
    r2p2_request_header_t request;
    r2p2_route_t route;
    r2p2_reply_header_t reply;
    r2p2_feedback_body_t feedback;
}

struct metadata_t {
    /* Passes of a request that found no room. */
    @field_list(1)
    bit<32> rounds;
    bit<1> is_held;
    bit<9> up_port;
    bit<32> index;
    bit<32> start;
    bit<32> best_load;
    bit<32> best_turn;
    bit<32> len;
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
        transition select(hdr.udp.len) {
            0 &&& 0xfff0: accept;
            default: base;
        }
    }
    state base {
        packet.extract(hdr.base);
        transition select(hdr.base.magic, hdr.base.header_size, hdr.base.type_policy) {
            (R2P2_MAGIC, R2P2_ROUTED_LEN, R2P2_MESSAGE_TYPE_REQUEST * 16): request;
            (R2P2_MAGIC, R2P2_EXTENDED_LEN, R2P2_MESSAGE_TYPE_FEEDBACK * 16 &&& 0xf0): feedback;
            default: accept;
        }
    }
    state request {
        packet.extract(hdr.request);
        packet.extract(hdr.route);
        transition accept;
    }
    state feedback {
        packet.extract(hdr.reply);
        packet.extract(hdr.feedback);
        transition accept;
    }
}

control verify_checksums(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<32>>(5) settings;
    register<bit<32>>(1) next;
    register<bit<32>>(SERVERS_MAX) placed;
    register<bit<32>>(SERVERS_MAX) base;
    register<bit<32>>(SERVERS_MAX) received;
    register<bit<32>>(SERVERS_MAX) concluded;
    register<bit<32>>(SERVERS_MAX) epoch;
    /* 1 or 0: a FEEDBACK of it has been taken, or the controller has set its counts. */
    register<bit<32>>(SERVERS_MAX) is_known;
    register<bit<32>>(SERVERS_MAX) in_service;
    counter(COUNTS_LEN, CounterType.packets) counts;

    action none() {}

    action router(bit<9> up_port) {
        meta.up_port = up_port;
    }
    /* The router's address. */
    table listen {
        key = {
            hdr.ipv4.destination: exact;
            hdr.udp.destination: exact;
        }
        actions = { router; none; }
        default_action = none();
        size = 1;
    }

    action server(bit<32> ip, bit<16> udp_port, bit<48> mac, bit<9> port) {
        hdr.ipv4.destination = ip;
        hdr.udp.destination = udp_port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        standard.egress_spec = port;
    }
    /* Where a server is. */
    table servers {
        key = { meta.index: exact; }
        actions = { server; none; }
        default_action = none();
        size = SERVERS_MAX;
    }

    action peer(bit<32> index) {
        meta.index = index;
    }
    /* Who sends FEEDBACK. */
    table peers {
        key = {
            hdr.ipv4.source: exact;
            hdr.udp.source: exact;
        }
        actions = { peer; none; }
        default_action = none();
        size = SERVERS_MAX;
    }

    action way(bit<48> mac, bit<9> port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        standard.egress_spec = port;
    }
    /* What is not for the router. */
    table forward {
        key = { hdr.ipv4.destination: lpm; }
        actions = { way; none; }
        default_action = none();
        size = 1024;
    }

    action send_up(bit<32> reason) {
        counts.count(reason);
        standard.egress_spec = meta.up_port;
    }

    action drop(bit<32> reason) {
        counts.count(reason);
        mark_to_drop(standard);
    }

    action place() {
        bit<32> before;
        placed.read(before, meta.index);
        placed.write(meta.index, before + 1);
        next.write(0, meta.index + 1);
        hdr.route.routed = 1;
        hdr.route.placement = before + 1;
        /* Over IPv4, 0 says that there is none. */
        hdr.udp.checksum = 0;
        counts.count(PLACED);
    }

    apply {
        if (!hdr.udp.isValid() || !listen.apply().hit) {
            if (!hdr.ipv4.isValid()) {
                drop(DROP_OTHERS);
            } else if (forward.apply().hit) {
                counts.count(FORWARDED);
            } else {
                drop(DROP_NO_WAY);
            }
        } else if (hdr.request.isValid() && hdr.route.isValid()) {
            /* One that XDP would place too; else user space judges it. */
            if (hdr.base.flags != R2P2_POSITION_ONLY || hdr.base.p_order != 1
                    || hdr.request.version != R2P2_EXTENSION_VERSION
                    || hdr.request.flags & (R2P2_FLAGS_RETRANSMIT | R2P2_FLAGS_CLONE | R2P2_FLAGS_MOVED) != 0
                    || hdr.request.message_len > (bit<32>)hdr.request.segment_len
                    || (bit<32>)hdr.udp.len != hdr.request.message_len + UDP_LEN + R2P2_ROUTED_LEN
                    || hdr.route.client_ip != 0 || hdr.route.client_port != 0
                    || hdr.route.routed != 0 || hdr.route.returns != 0) {
                send_up(UP_OPTIONS);
            } else @atomic {
                bit<32> bound;
                bit<32> rounds_max;
                bit<32> p;
                bit<32> b;
                bit<32> s;
                bit<32> turn;
                settings.read(bound, BOUND);
                settings.read(meta.len, LEN);
                settings.read(rounds_max, ROUNDS_MAX);
                next.read(meta.start, 0);
                if (meta.start >= meta.len) {
                    meta.start = 0;
                }
                meta.best_load = bound;
                meta.best_turn = 0;
#define LOOK(i) \
                if (i < meta.len) { \
                    placed.read(p, i); \
                    base.read(b, i); \
                    in_service.read(s, i); \
                    turn = i - meta.start; \
                    if (i < meta.start) { turn = turn + meta.len; } \
                    if (s == 1 && (p - b < meta.best_load \
                            || (p - b == meta.best_load && p - b < bound && turn < meta.best_turn))) { \
                        meta.best_load = p - b; \
                        meta.best_turn = turn; \
                        meta.index = i; \
                    } \
                }
#define LOOK_4(i) LOOK(i) LOOK(i + 1) LOOK(i + 2) LOOK(i + 3)
                LOOK_4(0) LOOK_4(4) LOOK_4(8) LOOK_4(12) LOOK_4(16) LOOK_4(20) LOOK_4(24) LOOK_4(28)
                if (meta.best_load < bound) {
                    place();
                    servers.apply();
                } else if (meta.rounds < rounds_max) {
                    /* Once more, when a FEEDBACK may have made room. */
                    meta.rounds = meta.rounds + 1;
                    meta.is_held = 1;
                    counts.count(RECIRCULATED);
                    standard.egress_spec = meta.up_port;
                } else {
                    send_up(UP_FULL);
                }
            }
        } else if (hdr.feedback.isValid() && hdr.reply.version == R2P2_EXTENSION_VERSION
                && hdr.udp.len == UDP_LEN + FEEDBACK_LEN) {
            if (!peers.apply().hit) {
                drop(DROP_STRANGER);
            } else @atomic {
                bit<32> known_received;
                bit<32> known_concluded;
                bit<32> known_epoch;
                bit<32> known;
                bit<32> p;
                bit<32> b;
                bit<32> at_server_max;
                bit<32> in_flight_max;
                received.read(known_received, meta.index);
                concluded.read(known_concluded, meta.index);
                epoch.read(known_epoch, meta.index);
                is_known.read(known, meta.index);
                placed.read(p, meta.index);
                base.read(b, meta.index);
                settings.read(at_server_max, AT_SERVER_MAX);
                settings.read(in_flight_max, IN_FLIGHT_MAX);
                bit<32> at_server = hdr.feedback.received - hdr.feedback.concluded;
                bit<32> received_since = hdr.feedback.received - known_received;
                bit<32> concluded_since = hdr.feedback.concluded - known_concluded;
                bit<32> seen_since = hdr.feedback.placement_seen - (b + (known_received - known_concluded));
                bool goes_on = hdr.feedback.epoch == known_epoch && received_since[31:31] == 0
                    && concluded_since[31:31] == 0 && seen_since[31:31] == 0;
                /* Of one that is not known any counts will do that have seen no more than was placed: it has the
                 * numbers of this switch alone. Of another epoch than the known one what is in flight is not known:
                 * that is the controller's. */
                if (at_server > at_server_max || p - hdr.feedback.placement_seen > in_flight_max
                        || hdr.reply.detail > 1 || (known == 1 && !goes_on)) {
                    send_up(UP_FEEDBACK);
                } else {
                    is_known.write(meta.index, 1);
                    epoch.write(meta.index, hdr.feedback.epoch);
                    received.write(meta.index, hdr.feedback.received);
                    concluded.write(meta.index, hdr.feedback.concluded);
                    base.write(meta.index, hdr.feedback.placement_seen - at_server);
                    /* One that stops gets nothing new. */
                    if (hdr.reply.flags & R2P2_FLAGS_STOPPING != 0) {
                        in_service.write(meta.index, 0);
                    } else {
                        in_service.write(meta.index, 1);
                    }
                    drop(FEEDBACK_TAKEN);
                }
            }
        } else {
            send_up(UP_OPTIONS);
        }
    }
}

control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (meta.is_held == 1) {
            recirculate_preserving_field_list(1);
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
