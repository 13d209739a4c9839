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
    __be32 source[4], destination[4]; /* that of IPv4 in the last */
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
    struct changed now = { .ports = { f->udp->source, f->udp->dest }, .header = *header_of(f) };
    if (f->is_ipv6) {
        __builtin_memcpy(now.source, &f->ip6->saddr, 2 * sizeof(now.source));
    } else {
        now.source[3] = f->ip4->saddr;
        now.destination[3] = f->ip4->daddr;
    }
    return now;
}

/* Makes the checksums those of what the packet is now. */
INLINE void correct(struct frame *f, struct changed *before)
{
    struct changed now = read(f);
    if (!f->is_ipv6)
        f->ip4->check = fold(bpf_csum_diff((__be32 *)before, 32, (__be32 *)&now, 32, (__u16)~f->ip4->check));
    /* Over IPv4, 0 says that there is none. */
    if (f->udp->check || f->is_ipv6)
        f->udp->check = fold_udp(bpf_csum_diff((__be32 *)before, sizeof(now), (__be32 *)&now, sizeof(now),
                                               (__u16)~f->udp->check));
}

/* Somebody behind the interface. */
INLINE void address(struct frame *f, const struct end *to)
{
    __u64 way = *(const volatile __u64 *)&to->way;
    __builtin_memcpy(f->eth->h_dest, &way, ETH_ALEN);
    if (f->is_ipv6)
        __builtin_memcpy(&f->ip6->daddr, to->ip, sizeof(to->ip));
    else
        f->ip4->daddr = ((const __be32 *)to->ip)[3];
    f->udp->dest = to->port;
}

/* The frame leaves as the switch's. */
INLINE void leave(struct frame *f, const struct end *to)
{
    __builtin_memcpy(f->eth->h_source, f->eth->h_dest, ETH_ALEN);
    if (f->is_ipv6)
        __builtin_memcpy(&f->ip6->saddr, cloner.ip, sizeof(cloner.ip));
    else
        f->ip4->saddr = ((const __be32 *)cloner.ip)[3];
    f->udp->source = cloner.port;
    address(f, to);
}

/* Who has sent it. */
INLINE void sender(const struct frame *f, struct end *from)
{
    __be32 *ip = (__be32 *)from->ip;
    if (f->is_ipv6)
        __builtin_memcpy(ip, &f->ip6->saddr, sizeof(from->ip));
    else
        ip[3] = f->ip4->saddr;
    from->port = f->udp->source;
    __u64 way = (__u64)f->tag << 48;
    __builtin_memcpy(&way, f->eth->h_source, ETH_ALEN);
    from->way = way;
}

/* It is to answer this, unless it is the clone. */
INLINE void ask(struct frame *f, struct clone_server *server)
{
    __sync_fetch_and_add(&server->asked, 1);
    leave(f, &server->end);
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
    if (first->interface != interface || second->interface != interface || first->is_out || second->is_out ||
        first->end.way >> 48 != f->tag || second->end.way >> 48 != f->tag)
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
    sender(f, &flight->client);
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
    struct end end = {};
    sender(f, &end);
    if (sid >= CLONER_SERVERS_MAX || sid >= cloner.servers_len || from->end.port != end.port ||
        ((const __be32 *)from->end.ip)[3] != ((const __be32 *)end.ip)[3] || (f->is_ipv6 && !is_same(from->end.ip, end.ip)))
        return count(CLONER_DROP_STRANGER, XDP_DROP);
    /* Also of a response that is dropped below. */
    from->load = bpf_ntohl(header->load);
    from->end.way = end.way;
    from->interface = context->ingress_ifindex;
    if ((tidx & ~1u) != cloner.epoch)
        return count(CLONER_UP_UNKNOWN, XDP_PASS);
    __sync_fetch_and_add(&from->answered, 1);
    __u32 place = seq & (FLIGHTS_LEN - 1);
    struct flight *flight = bpf_map_lookup_elem(&flights, &place);
    if (!seq || !flight || *(volatile __u32 *)&flight->seq != seq || flight->client.way >> 48 != f->tag)
        return count(CLONER_DROP_UNKNOWN, XDP_DROP);
    if (header->clo) {
        if (is_slower(tidx, seq))
            return count(CLONER_DROP_FILTERED, XDP_DROP);
        if (header->clo == bpf_htonl(NETCLONE_CLONE_MARK_CLONE))
            count(CLONER_CLONES_WON, 0);
    }
    struct changed before = read(f);
    header->tidx = flight->tidx;
    leave(f, &flight->client);
    correct(f, &before);
    return count(CLONER_REPLIES_FORWARDED, XDP_TX);
}

SEC("xdp.frags")
int clone(struct xdp_md *context)
{
    struct frame f = {};
    enum whose is_for = find(context, &f) ? whose(&f, cloner.ip, cloner.is_ipv4, cloner.port) : ANOTHERS;
    if (is_for != OURS)
        return count(is_for == OURS_ODD ? CLONER_UP_IP : CLONER_OTHERS, XDP_PASS);
    struct netclone_header *header = header_of(&f);
    if (!is_whole(context, &f) || f.len < sizeof(*header) || (void *)(header + 1) > f.end)
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
    address(&f, &server(bpf_ntohl(header->sid))->end);
    header->clo = bpf_htonl(NETCLONE_CLONE_MARK_CLONE);
    correct(&f, &before);
    return XDP_PASS;
}

SEC("xdp.frags/devmap")
int mark(struct xdp_md *context)
{
    return mark_second(context);
}

/* As a program of its own, which the kernel runs on a test's packet. */
SEC("xdp.frags/test")
int mark_tested(struct xdp_md *context)
{
    return mark_second(context);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
