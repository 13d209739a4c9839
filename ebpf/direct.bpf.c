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

static __always_inline int direct(struct xdp_md *context)
{
    void *end = (void *)(long)context->data_end;
    struct ethhdr *eth = (void *)(long)context->data;
    void *packet = eth + 1;
    struct key key = {};
    __be16 *to;

    if (packet > end)
        return XDP_PASS;
    __be16 protocol = eth->h_proto;
    if (protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
        struct vlan *vlan = packet;

        packet = vlan + 1;
        if (packet > end)
            return XDP_PASS;
        protocol = vlan->protocol;
    }
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = packet;

        to = (__be16 *)(ip + 1) + 1;
        if ((void *)(to + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(0x3fff))
            return XDP_PASS;
        key.ip[2] = bpf_htonl(0xffff);
        key.ip[3] = ip->daddr;
        key.protocol = ip->protocol;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = packet;

        to = (__be16 *)(ip + 1) + 1;
        if ((void *)(to + 1) > end)
            return XDP_PASS;
        __builtin_memcpy(key.ip, &ip->daddr, sizeof(key.ip));
        key.protocol = ip->nexthdr;
    } else {
        return XDP_PASS;
    }
    /* Where Homa has its destination port too. */
    key.port = *to;
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
