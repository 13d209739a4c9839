/* The XDP cloner: NetClone's switch before the kernel's network stack, for one interface that clients and servers are
 * behind. crates/proto/src/netclone/mod.rs decides the same, and says why.
 *
 * A request for two goes out by a broadcast over `copies`, whose two entries are the interface. Of the two frames the
 * program `mark` at its egress makes the second the clone: they are alike, and follow one another on one CPU. */
#include "cloner.h"
#include "packet.h"
#include "wire.h"

struct cloner cloner;

struct map flights SEC("maps") = { BPF_MAP_TYPE_ARRAY, 4, sizeof(struct flight), FLIGHTS_LEN, 0 };
/* Ids that wait for their second response, a table after the other. */
struct map filter SEC("maps") = { BPF_MAP_TYPE_ARRAY, 4, 4, 2 * FILTER_LEN, 0 };
struct map copies SEC("maps") = { BPF_MAP_TYPE_DEVMAP, 4, sizeof(struct bpf_devmap_val), 2, 0 };
/* The id of the original that this CPU has sent last. */
struct map sent SEC("maps") = { BPF_MAP_TYPE_PERCPU_ARRAY, 4, 4, 1, 0 };

/* What of a packet changes, for its checksum. */
struct changed {
    __be32 source, destination;
    __be16 ports[2];
    struct netclone_header header;
};

INLINE int count(enum cloner_count what, int verdict)
{
    cloner.counts[bpf_get_smp_processor_id() & 255][what]++;
    return verdict;
}

INLINE struct netclone_header *header_of(const struct frame *f)
{
    return (void *)(f->udp + 1);
}

INLINE struct changed read(const struct frame *f)
{
    struct changed now = { f->ip4->saddr, f->ip4->daddr, { f->udp->source, f->udp->dest }, *header_of(f) };
    return now;
}

/* Makes the checksums those of what the packet is now. */
INLINE void correct(struct frame *f, struct changed *before)
{
    struct changed now = read(f);
    f->ip4->check = fold(bpf_csum_diff((__be32 *)before, 8, (__be32 *)&now, 8, (__u16)~f->ip4->check));
    /* Over IPv4, 0 says that there is none. */
    if (f->udp->check)
        f->udp->check = fold_udp(bpf_csum_diff((__be32 *)before, sizeof(now), (__be32 *)&now, sizeof(now),
                                               (__u16)~f->udp->check));
}

/* The frame leaves as the switch's, to somebody. */
INLINE void address(struct frame *f, __u64 mac, __be32 ip, __be16 port)
{
    f->ip4->saddr = cloner.ip;
    f->udp->source = cloner.port;
    __builtin_memcpy(f->eth->h_source, f->eth->h_dest, ETH_ALEN);
    __builtin_memcpy(f->eth->h_dest, &mac, ETH_ALEN);
    f->ip4->daddr = ip;
    f->udp->dest = port;
}

/* It is to answer this, unless it is the clone. */
INLINE void ask(struct frame *f, struct clone_server *server)
{
    __sync_fetch_and_add(&server->asked, 1);
    address(f, server->mac, server->ip, server->port);
}

INLINE struct clone_server *server(__u32 index)
{
    return &cloner.servers[index & (CLONER_SERVERS_MAX - 1)];
}

INLINE int request(struct xdp_md *context, struct frame *f)
{
    struct netclone_header *header = header_of(f);
    __u32 group = bpf_ntohl(header->grp), interface = context->ingress_ifindex;
    int is_known = group && group < GROUPS_MAX && group <= cloner.groups_len;
    struct pair pair = cloner.pairs[is_known ? group & (GROUPS_MAX - 1) : 0];
    struct clone_server *first = server(pair.first), *second = server(pair.second);
    if (!is_answerable(f))
        return count(CLONER_DROP_STRANGER, XDP_DROP);
    if (first->interface != interface || second->interface != interface || first->is_out || second->is_out)
        return count(CLONER_UP_UNRESOLVED, XDP_PASS);
    if (!is_known)
        count(CLONER_UNKNOWN_GROUP, 0);
    __u32 seq = __sync_fetch_and_add(&cloner.ids, 1) % NETCLONE_SEQ_MAX + 1, place = seq & (FLIGHTS_LEN - 1);
    struct flight *flight = bpf_map_lookup_elem(&flights, &place);
    if (!flight)
        return count(CLONER_DROP_UNKNOWN, XDP_DROP);
    /* Another's response finds nothing rather than half of this. */
    *(volatile __u32 *)&flight->seq = 0;
    flight->tidx = header->tidx;
    flight->ip = f->ip4->saddr;
    flight->port = f->udp->source;
    __builtin_memcpy(flight->mac, f->eth->h_source, ETH_ALEN);
    *(volatile __u32 *)&flight->seq = seq;

    struct changed before = read(f);
    __u32 loads[2] = { first->load, second->load };
    header->seq = bpf_htonl(seq);
    header->tidx = bpf_htonl(cloner.epoch | (bpf_ntohl(header->tidx) & 1));
    count(CLONER_PLACED, 0);
    if (first != second && !(loads[0] | loads[1])) {
        header->sid = bpf_htonl(pair.second);
        header->clo = bpf_htonl(NETCLONE_CLONE_MARK_ORIGINAL);
        ask(f, first);
        correct(f, &before);
        return count(CLONER_CLONED, bpf_redirect_map(&copies, 0, BPF_F_BROADCAST));
    }
    header->clo = NETCLONE_CLONE_MARK_SINGLE;
    ask(f, cloner.is_shorter && loads[0] > loads[1] ? second : first);
    correct(f, &before);
    return XDP_TX;
}

/* Whether the other response of a request has passed; both copies' come to the same cell. */
INLINE int is_slower(__u32 tidx, __u32 seq)
{
    __u32 place = (seq & cloner.filter_mask & (FILTER_LEN - 1)) + (tidx & 1) * FILTER_LEN;
    __u32 *cell = bpf_map_lookup_elem(&filter, &place);
    if (!cell)
        return 0;
    if (__sync_val_compare_and_swap(cell, seq, 0) == seq)
        return 1;
    __u32 evicted = __sync_lock_test_and_set(cell, seq);
    if (evicted == seq) {
        /* The other came between, on another CPU. */
        __sync_val_compare_and_swap(cell, seq, 0);
        return 1;
    }
    if (evicted)
        count(CLONER_FILTER_EVICTED, 0);
    return 0;
}

INLINE int response(struct xdp_md *context, struct frame *f)
{
    struct netclone_header *header = header_of(f);
    __u32 sid = bpf_ntohl(header->sid), seq = bpf_ntohl(header->seq), tidx = bpf_ntohl(header->tidx);
    struct clone_server *from = server(sid);
    if (sid >= CLONER_SERVERS_MAX || sid >= cloner.servers_len || from->ip != f->ip4->saddr ||
        from->port != f->udp->source)
        return count(CLONER_DROP_STRANGER, XDP_DROP);
    /* Also of a response that is dropped below. */
    from->load = bpf_ntohl(header->load);
    __u64 mac = 0;
    __builtin_memcpy(&mac, f->eth->h_source, ETH_ALEN);
    from->mac = mac;
    from->interface = context->ingress_ifindex;
    if ((tidx & ~1u) != cloner.epoch)
        return count(CLONER_UP_UNKNOWN, XDP_PASS);
    __sync_fetch_and_add(&from->answered, 1);
    __u32 place = seq & (FLIGHTS_LEN - 1);
    struct flight *flight = bpf_map_lookup_elem(&flights, &place);
    if (!seq || !flight || *(volatile __u32 *)&flight->seq != seq)
        return count(CLONER_DROP_UNKNOWN, XDP_DROP);
    if (header->clo) {
        if (is_slower(tidx, seq))
            return count(CLONER_DROP_FILTERED, XDP_DROP);
        if (header->clo == bpf_htonl(NETCLONE_CLONE_MARK_CLONE))
            count(CLONER_CLONES_WON, 0);
    }
    struct changed before = read(f);
    __builtin_memcpy(&mac, flight->mac, ETH_ALEN);
    header->tidx = flight->tidx;
    address(f, mac, flight->ip, flight->port);
    correct(f, &before);
    return count(CLONER_REPLIES_FORWARDED, XDP_TX);
}

/* Finds the headers; false for what is no IPv4 or ends before that of UDP does. */
INLINE int find(struct xdp_md *context, struct frame *f)
{
    __be16 protocol = find_network(context, f);
    f->ip4 = f->network;
    f->udp = (void *)(f->ip4 + 1);
    return protocol == bpf_htons(ETH_P_IP) && (void *)(f->udp + 1) <= f->end;
}

SEC("xdp")
int clone(struct xdp_md *context)
{
    struct frame f = {};
    if (!find(context, &f) || f.ip4->daddr != cloner.ip || f.ip4->protocol != IPPROTO_UDP)
        return count(CLONER_OTHERS, XDP_PASS);
    if (!is_plain(f.ip4))
        return count(CLONER_UP_IP, XDP_PASS);
    if (f.udp->dest != cloner.port)
        return count(CLONER_OTHERS, XDP_PASS);
    struct netclone_header *header = header_of(&f);
    if (!is_whole(&f, bpf_ntohs(f.ip4->tot_len) - sizeof(*f.ip4)) || f.len < sizeof(*header) ||
        (void *)(header + 1) > f.end)
        return count(CLONER_DROP_LENGTH, XDP_DROP);
    __u32 op = bpf_ntohl(header->op);
    if (op > NETCLONE_OP_RESPONSE)
        return count(CLONER_DROP_OP, XDP_DROP);
    if (bpf_ntohl(header->clo) > NETCLONE_CLONE_MARK_CLONE)
        return count(CLONER_DROP_MARK, XDP_DROP);
    return op == NETCLONE_OP_REQUEST ? request(context, &f) : response(context, &f);
}

INLINE int mark_second(struct xdp_md *context)
{
    struct frame f = {};
    __u32 zero = 0, *last = bpf_map_lookup_elem(&sent, &zero);
    if (!last || !find(context, &f) || (void *)(header_of(&f) + 1) > f.end)
        return XDP_DROP;
    struct netclone_header *header = header_of(&f);
    if (*last != header->seq) {
        *last = header->seq;
        return XDP_PASS;
    }
    *last = 0;
    struct changed before = read(&f);
    const struct clone_server *second = server(bpf_ntohl(header->sid));
    __u64 mac = second->mac;
    header->clo = bpf_htonl(NETCLONE_CLONE_MARK_CLONE);
    __builtin_memcpy(f.eth->h_dest, &mac, ETH_ALEN);
    f.ip4->daddr = second->ip;
    f.udp->dest = second->port;
    correct(&f, &before);
    return XDP_PASS;
}

SEC("xdp/devmap")
int mark(struct xdp_md *context)
{
    return mark_second(context);
}

/* As a program of its own, which the kernel runs on a test's packet. */
SEC("xdp/test")
int mark_tested(struct xdp_md *context)
{
    return mark_second(context);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
