/* NetClone's switch (SIGCOMM'23) for TNA (Tofino): what netclone_v1model.p4 decides, in one pass of the pipeline.
 * Type-checked by p4test with the open headers; no Tofino has run it.
 *
 * A pass may touch a register once, so the loads are kept twice, and the second copy decides whether to clone. The
 * clone comes back through the recirculation port, which a multicast group sends it to beside the original. */
#include <core.p4>
#include <tna.p4>

#include "packets.p4"

#define FILTER_LEN 131072
#define RECIRCULATION_PORT 68

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
    /* Of the controller: what is not cloned goes to the one where less wait (RackSched). */
    bit<1> is_shorter;
}

struct egress_headers_t {}
struct egress_metadata_t {}

parser ingress_parse(packet_in packet, out headers_t hdr, out metadata_t meta, out ingress_intrinsic_metadata_t from) {
    state start {
        packet.extract(from);
        packet.advance(PORT_METADATA_SIZE);
        meta.first = 0;
        meta.second = 0;
        meta.group = 0;
        meta.chosen = 0;
        meta.is_shorter = 0;
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

control ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t from,
        in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
        inout ingress_intrinsic_metadata_for_tm_t manager) {
    Register<bit<32>, bit<32>>(1) seq;
    RegisterAction<bit<32>, bit<32>, bit<32>>(seq) next_id = {
        void apply(inout bit<32> value, out bit<32> id) {
            if (value >= NETCLONE_SEQ_MAX) {
                value = 1;
            } else {
                value = value + 1;
            }
            id = value;
        }
    };

    Register<bit<32>, bit<32>>(NETCLONE_SERVERS_MAX) loads;
    RegisterAction<bit<32>, bit<32>, bit<32>>(loads) read_load = {
        void apply(inout bit<32> value, out bit<32> load) {
            load = value;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(loads) write_load = {
        void apply(inout bit<32> value, out bit<32> load) {
            value = hdr.netclone.load;
            load = value;
        }
    };
    Register<bit<32>, bit<32>>(NETCLONE_SERVERS_MAX) shadow;
    RegisterAction<bit<32>, bit<32>, bit<32>>(shadow) read_shadow = {
        void apply(inout bit<32> value, out bit<32> load) {
            load = value;
        }
    };
    RegisterAction<bit<32>, bit<32>, bit<32>>(shadow) write_shadow = {
        void apply(inout bit<32> value, out bit<32> load) {
            value = hdr.netclone.load;
            load = value;
        }
    };

    Register<bit<32>, bit<32>>(FILTER_LEN) filter_0;
    /* 1 for the slower of two responses. */
    RegisterAction<bit<32>, bit<32>, bit<1>>(filter_0) judge_0 = {
        void apply(inout bit<32> value, out bit<1> is_slower) {
            if (value == hdr.netclone.seq) {
                value = 0;
                is_slower = 1;
            } else {
                value = hdr.netclone.seq;
                is_slower = 0;
            }
        }
    };
    Register<bit<32>, bit<32>>(FILTER_LEN) filter_1;
    RegisterAction<bit<32>, bit<32>, bit<1>>(filter_1) judge_1 = {
        void apply(inout bit<32> value, out bit<1> is_slower) {
            if (value == hdr.netclone.seq) {
                value = 0;
                is_slower = 1;
            } else {
                value = hdr.netclone.seq;
                is_slower = 0;
            }
        }
    };

    /* Of a clone and of a request whose server is not in the table, the slower response, no way. */
    Counter<bit<64>, bit<8>>(4, CounterType_t.PACKETS) drops;

    action none() {}

    action drop(bit<8> reason) {
        drops.count(reason);
        deparsed.drop_ctl = 1;
    }

    action fallback(bit<1> is_shorter) {
        meta.is_shorter = is_shorter;
    }
    table settings {
        actions = { fallback; }
        default_action = fallback(0);
    }

    action pair(bit<32> first, bit<32> second, bit<16> group) {
        meta.first = first;
        meta.second = second;
        meta.group = group;
    }
    table groups {
        key = { hdr.netclone.grp: exact; }
        actions = { pair; }
        default_action = pair(0, 1, 1);
        size = 256;
    }

    action server(bit<32> ip, bit<48> mac, PortId_t port) {
        hdr.ipv4.destination = ip;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = mac;
        manager.ucast_egress_port = port;
    }
    table servers {
        key = { meta.chosen: exact; }
        actions = { server; none; }
        default_action = none();
        size = NETCLONE_SERVERS_MAX;
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

    apply {
        if (hdr.netclone.isValid() && from.ingress_port == RECIRCULATION_PORT) {
            /* The clone: only its address is new. */
            hdr.netclone.clo = NETCLONE_CLONE_MARK_CLONE;
            meta.chosen = hdr.netclone.sid;
            if (!servers.apply().hit) {
                drop(0);
            }
        } else if (hdr.netclone.isValid() && hdr.udp.destination == NETCLONE_PORT
                && hdr.netclone.op == NETCLONE_OP_REQUEST) {
            hdr.udp.checksum = 0;
            hdr.netclone.seq = next_id.execute(0);
            groups.apply();
            settings.apply();
            bit<32> first_load = read_load.execute(meta.first);
            bit<32> second_load = read_shadow.execute(meta.second);
            hdr.netclone.clo = NETCLONE_CLONE_MARK_SINGLE;
            meta.chosen = meta.first;
            if (meta.first != meta.second && first_load == 0 && second_load == 0) {
                hdr.netclone.clo = NETCLONE_CLONE_MARK_ORIGINAL;
                hdr.netclone.sid = meta.second;
                manager.mcast_grp_a = meta.group;
            } else if (meta.is_shorter == 1 && first_load > second_load) {
                meta.chosen = meta.second;
            }
            if (!servers.apply().hit) {
                drop(1);
            } else if (manager.mcast_grp_a != 0) {
                /* The group has the port of the first, and the one that recirculates. */
                invalidate(manager.ucast_egress_port);
            }
        } else if (hdr.netclone.isValid() && hdr.udp.source == NETCLONE_PORT
                && hdr.netclone.op == NETCLONE_OP_RESPONSE && hdr.netclone.sid < NETCLONE_SERVERS_MAX) {
            hdr.udp.checksum = 0;
            write_load.execute(hdr.netclone.sid);
            write_shadow.execute(hdr.netclone.sid);
            bit<1> is_slower = 0;
            if (hdr.netclone.clo != NETCLONE_CLONE_MARK_SINGLE) {
                if (hdr.netclone.tidx & 1 == 0) {
                    is_slower = judge_0.execute(hdr.netclone.seq & (FILTER_LEN - 1));
                } else {
                    is_slower = judge_1.execute(hdr.netclone.seq & (FILTER_LEN - 1));
                }
            }
            if (is_slower == 1) {
                drop(2);
            } else if (!forward.apply().hit) {
                drop(3);
            }
        } else if (!forward.apply().hit) {
            drop(3);
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
