/* What all programs read of a packet before R2P2 or NetClone: Ethernet, IPv4 and UDP. */
#ifndef TAILCUT_PACKETS_P4
#define TAILCUT_PACKETS_P4

#include "wire.p4"

#define ETHERTYPE_IPV4 0x0800
#define PROTOCOL_UDP 17
/* Of the UDP header, in the UDP length. */
#define UDP_LEN 8

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

/* Without options. */
header ipv4_t {
    bit<8> version_ihl;
    bit<8> dscp_ecn;
    bit<16> len;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> len;
    bit<16> checksum;
}

#endif
