/* Directs packets for ports of ours to AF_XDP sockets, past the kernel's stack: UDP, and Homa directly over IP.
 * Everything else goes on to the kernel: other protocols, other ports, addresses that are not this host's,
 * fragments, IP options, extension headers, two tags, and what comes at a queue without a socket. */
#include "packet.h"

/* As in crates/net/src/datapath/xdp/interface.rs. */
enum {
    PORTS_MAX = 256,
    QUEUES_MAX = 64,
    ADDRESSES_MAX = 64,
};

/* An address of this host, those of IPv4 as ::ffff:a.b.c.d, with a port and a protocol of IP. */
struct key {
    __u32 ip[4];
    __be16 port;
    __u16 protocol;
};

/* The first place in `sockets`, of one for each queue. */
struct map ports SEC("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct key), 4, PORTS_MAX * ADDRESSES_MAX, BPF_F_NO_PREALLOC };
struct map sockets SEC("maps") = { BPF_MAP_TYPE_XSKMAP, 4, 4, PORTS_MAX * QUEUES_MAX, 0 };

INLINE int direct(struct xdp_md *context)
{
    struct frame f = {};
    struct key key = {};
    if (!find(context, &f))
        return XDP_PASS;
    if (f.is_ipv6) {
        __builtin_memcpy(key.ip, &f.ip6->daddr, sizeof(key.ip));
        key.protocol = f.ip6->nexthdr;
    } else {
        if (!is_plain(f.ip4))
            return XDP_PASS;
        key.ip[2] = bpf_htonl(0xffff);
        key.ip[3] = f.ip4->daddr;
        key.protocol = f.ip4->protocol;
    }
    /* Where Homa has its destination port too. */
    key.port = f.udp->dest;
    __u32 *place = bpf_map_lookup_elem(&ports, &key);
    if (!place || context->rx_queue_index >= QUEUES_MAX)
        return XDP_PASS;
    /* Where there is no socket this answers what it is given. */
    return bpf_redirect_map(&sockets, *place + context->rx_queue_index, XDP_PASS);
}

SEC("xdp")
int direct_whole(struct xdp_md *context)
{
    return direct(context);
}

/* Packets of several buffers too, of which headers are in the first. */
SEC("xdp.frags")
int direct_parts(struct xdp_md *context)
{
    return direct(context);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
