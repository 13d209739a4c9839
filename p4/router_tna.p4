/* The R2P2 router, jbsq:N, for TNA (Tofino): what router_v1model.p4 decides, by recirculation. Type-checked by p4test
 * with the open headers; no Tofino has run it.
 *
 * A pass may touch a register once, so a request looks at one server a pass: it carries how far it is and the best
 * server up to there in a header of its own. Then a pass takes the place, if it is still there; else it looks anew. */
#include <core.p4>
#include <tna.p4>

#include "packets.p4"

#define SERVERS_MAX 32
#define RECIRCULATION_PORT 68
#define FEEDBACK_LEN 64

/* Kinds of passes. */
#define LOOK 0
#define TAKE 1

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
#define COUNTS_LEN 9

/* In front of a packet that recirculates. */
header scan_t {
    bit<8> pass;
    bit<8> turn;
    bit<16> rounds;
    bit<32> index;
    bit<32> best_load;
    bit<32> best_index;
}

struct headers_t {
    scan_t scan;
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
    PortId_t up_port;
    bit<32> bound;
    bit<32> len;
    bit<16> rounds_max;
    bit<32> index;
    bit<32> limit;
    bit<32> seen;
    bit<32> at_server;
}

struct egress_headers_t {}
struct egress_metadata_t {}

parser ingress_parse(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t from) {
    state start {
        packet.extract(from);
        packet.advance(PORT_METADATA_SIZE);
        meta.up_port = 0;
        meta.bound = 0;
        meta.len = 0;
        meta.rounds_max = 0;
        meta.index = 0;
        meta.limit = 0;
        meta.seen = 0;
        meta.at_server = 0;
        transition select(from.ingress_port) {
            RECIRCULATION_PORT: scan;
            default: ethernet;
        }
    }
    state scan {
        packet.extract(hdr.scan);
        transition ethernet;
    }
    state ethernet {
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

control ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t from,
        in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
        inout ingress_intrinsic_metadata_for_tm_t manager) {
    Register<bit<32>, bit<32>>(1) next;
    RegisterAction<bit<32>, bit<32>, bit<32>>(next) read_next = {
        void apply(inout bit<32> value, out bit<32> start) {
            start = value;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(next) write_next = {
        void apply(inout bit<32> value, out bit<32> start) {
            value = meta.index + 1;
            start = value;
        }
    };

    /* outstanding = placed - base. The controller gives one that is out of service a base of placed - bound. */
    Register<bit<32>, bit<32>>(SERVERS_MAX) bases;
    RegisterAction<bit<32>, bit<32>, bit<32>>(bases) read_base = {
        void apply(inout bit<32> value, out bit<32> base) {
            base = value;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(bases) write_base = {
        void apply(inout bit<32> value, out bit<32> base) {
            value = meta.seen - meta.at_server;
            base = value;
        }
    };

    Register<bit<32>, bit<32>>(SERVERS_MAX) placed;
    RegisterAction<bit<32>, bit<32>, bit<32>>(placed) read_placed = {
        void apply(inout bit<32> value, out bit<32> number) {
            number = value;
        }
    };
    /* The number of the placement, or 0 where the bound has been reached meanwhile. */
    RegisterAction<bit<32>, bit<32>, bit<32>>(placed) take = {
        void apply(inout bit<32> value, out bit<32> number) {
            number = 0;
            if (value != meta.limit) {
                value = value + 1;
                number = value;
            }
        }
    };

    /* Nothing that goes back is taken. */
    Register<bit<32>, bit<32>>(SERVERS_MAX) concluded;
    RegisterAction<bit<32>, bit<32>, bit<1>>(concluded) conclude = {
        void apply(inout bit<32> value, out bit<1> goes_on) {
            goes_on = 0;
            if (hdr.feedback.concluded >= value) {
                value = hdr.feedback.concluded;
                goes_on = 1;
            }
        }
    };
    Register<bit<32>, bit<32>>(SERVERS_MAX) epoch;
    RegisterAction<bit<32>, bit<32>, bit<1>>(epoch) same_epoch = {
        void apply(inout bit<32> value, out bit<1> is_same) {
            is_same = 0;
            if (value == hdr.feedback.epoch) {
                is_same = 1;
            }
        }
    };

    Counter<bit<64>, bit<8>>(COUNTS_LEN, CounterType_t.PACKETS) counts;

    action none() {}

    action router(PortId_t up_port, bit<32> bound, bit<32> len, bit<16> rounds_max) {
        meta.up_port = up_port;
        meta.bound = bound;
        meta.len = len;
        meta.rounds_max = rounds_max;
    }
    table listen {
        key = {
            hdr.ipv4.destination: exact;
            hdr.udp.destination: exact;
        }
        actions = { router; none; }
        default_action = none();
        size = 1;
    }

    action server(bit<32> ip, bit<16> udp_port, bit<48> mac, PortId_t port) {
        hdr.ipv4.destination = ip;
        hdr.udp.destination = udp_port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        manager.ucast_egress_port = port;
    }
    table servers {
        key = { meta.index: exact; }
        actions = { server; none; }
        default_action = none();
        size = SERVERS_MAX;
    }

    action peer(bit<32> index) {
        meta.index = index;
    }
    table peers {
        key = {
            hdr.ipv4.source: exact;
            hdr.udp.source: exact;
        }
        actions = { peer; none; }
        default_action = none();
        size = SERVERS_MAX;
    }

    action way(bit<48> mac, PortId_t port) {
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        manager.ucast_egress_port = port;
    }
    table forward {
        key = { hdr.ipv4.destination: lpm; }
        actions = { way; none; }
        default_action = none();
        size = 1024;
    }

    action send_up(bit<8> reason) {
        counts.count(reason);
        hdr.scan.setInvalid();
        manager.ucast_egress_port = meta.up_port;
    }

    action drop(bit<8> reason) {
        counts.count(reason);
        deparsed.drop_ctl = 1;
    }

    action again() {
        counts.count(RECIRCULATED);
        manager.ucast_egress_port = RECIRCULATION_PORT;
    }

    action begin(bit<16> rounds) {
        hdr.scan.setValid();
        hdr.scan.pass = LOOK;
        hdr.scan.turn = 0;
        hdr.scan.rounds = rounds;
        hdr.scan.best_load = meta.bound;
        hdr.scan.best_index = 0;
    }

    apply {
        if (!hdr.udp.isValid() || !listen.apply().hit) {
            if (forward.apply().hit) {
                counts.count(FORWARDED);
            } else {
                drop(DROP_NO_WAY);
            }
        } else if (hdr.scan.isValid() && hdr.scan.pass == TAKE) {
            meta.index = hdr.scan.best_index;
            meta.limit = read_base.execute(meta.index) + meta.bound;
            bit<32> number = take.execute(meta.index);
            if (number != 0) {
                write_next.execute(0);
                hdr.scan.setInvalid();
                hdr.route.routed = 1;
                hdr.route.placement = number;
                hdr.udp.checksum = 0;
                servers.apply();
                counts.count(PLACED);
            } else {
                begin(hdr.scan.rounds);
                hdr.scan.index = read_next.execute(0);
                again();
            }
        } else if (hdr.scan.isValid()) {
            if (hdr.scan.index >= meta.len) {
                hdr.scan.index = 0;
            }
            meta.index = hdr.scan.index;
            bit<32> outstanding = read_placed.execute(meta.index) - read_base.execute(meta.index);
            /* The first in the circle wins, as it is looked at first. */
            if (outstanding < hdr.scan.best_load) {
                hdr.scan.best_load = outstanding;
                hdr.scan.best_index = meta.index;
            }
            hdr.scan.index = hdr.scan.index + 1;
            hdr.scan.turn = hdr.scan.turn + 1;
            if ((bit<32>)hdr.scan.turn < meta.len) {
                again();
            } else if (hdr.scan.best_load < meta.bound) {
                hdr.scan.pass = TAKE;
                again();
            } else if (hdr.scan.rounds < meta.rounds_max) {
                begin(hdr.scan.rounds + 1);
                again();
            } else {
                send_up(UP_FULL);
            }
        } else if (hdr.request.isValid() && hdr.route.isValid()) {
            if (hdr.base.flags != R2P2_POSITION_ONLY || hdr.base.p_order != 1
                    || hdr.request.version != R2P2_EXTENSION_VERSION
                    || hdr.request.flags & (R2P2_FLAGS_RETRANSMIT | R2P2_FLAGS_CLONE | R2P2_FLAGS_MOVED) != 0
                    || hdr.request.message_len > (bit<32>)hdr.request.segment_len
                    || (bit<32>)hdr.udp.len != hdr.request.message_len + UDP_LEN + R2P2_ROUTED_LEN
                    || hdr.route.client_ip != 0 || hdr.route.client_port != 0
                    || hdr.route.routed != 0 || hdr.route.returns != 0) {
                send_up(UP_OPTIONS);
            } else {
                begin(0);
                hdr.scan.index = read_next.execute(0);
                again();
            }
        } else if (hdr.feedback.isValid() && hdr.reply.version == R2P2_EXTENSION_VERSION
                && hdr.udp.len == UDP_LEN + FEEDBACK_LEN) {
            meta.seen = hdr.feedback.placement_seen;
            meta.at_server = hdr.feedback.received - hdr.feedback.concluded;
            if (!peers.apply().hit) {
                drop(DROP_STRANGER);
            } else if (hdr.reply.detail > 1 || hdr.reply.flags & R2P2_FLAGS_STOPPING != 0
                    || same_epoch.execute(meta.index) == 0 || conclude.execute(meta.index) == 0) {
                /* One that stops is the controller's to take out. */
                send_up(UP_FEEDBACK);
            } else {
                write_base.execute(meta.index);
                drop(FEEDBACK_TAKEN);
            }
        } else {
            send_up(UP_OPTIONS);
        }
    }
}

control ingress_deparse(packet_out packet, inout headers_t hdr, in metadata_t meta,
        in ingress_intrinsic_metadata_for_deparser_t deparsed) {
    Checksum() ip_checksum;
    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ip_checksum.update({ hdr.ipv4.version_ihl, hdr.ipv4.dscp_ecn, hdr.ipv4.len, hdr.ipv4.id,
                hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination });
        }
        packet.emit(hdr);
    }
}

parser egress_parse(packet_in packet, out egress_headers_t hdr, out egress_metadata_t meta,
        out egress_intrinsic_metadata_t to) {
    state start {
        packet.extract(to);
        transition accept;
    }
}

control egress(inout egress_headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t to,
        in egress_intrinsic_metadata_from_parser_t parsed, inout egress_intrinsic_metadata_for_deparser_t deparsed,
        inout egress_intrinsic_metadata_for_output_port_t port) {
    apply {}
}

control egress_deparse(packet_out packet, inout egress_headers_t hdr, in egress_metadata_t meta,
        in egress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {}
}

Pipeline(ingress_parse(), ingress(), ingress_deparse(), egress_parse(), egress(), egress_deparse()) pipe;
Switch(pipe) main;
