/* The XDP router: places requests of one packet on servers, and takes their FEEDBACK, before the kernel's network
 * stack. Whatever it cannot place goes up, to the user-space router: to its AF_XDP sockets where it has some, else to its
 * socket of UDP.
 *
 * The client stays the source, so the server answers it directly. The policies are those of
 * crates/placement/src/policy, to the bit for one random word and one CPU. A place is taken by one atomic operation,
 * so no server ever has more than the bound. Packets are read as in crates/wire/src/r2p2/packet.rs. */
#include "packet.h"
#include "router.h"
#include "siphash.h"
#include "wire.h"

#define LOOP _Pragma("clang loop unroll(disable)")
#define OUT_OF_SERVICE (~0u)
#define NOBODY (~0u)
#define AF_INET 2
#define AF_INET6 10
/* In next_hop: the way is known; frames there are tagged. */
#define NEXT_HOP_KNOWN (1ull << 63)
#define MAC_MASK 0xffffffffffffull
/* Between two questions for a way that is known. */
#define RESOLVE_NS 100000000ull
/* In resolved_at: user space has set the way. */
#define FIXED (~0ull)
/* Where the program goes on with a packet. */
#define ON (-1)
/* In the expiry of an id. */
#define ID_UNIT 24
#define ID_TIME_MASK 0x3ffffffu
#define ID_TIME_MAX (1u << 17)
#define TRAILER_LEN 32
/* In `version`, as in crates/wire/src/r2p2/sealed.rs: sealed from end to end, and authenticated for one hop. */
#define SEALED_VERSION 2
#define HOP_VERSION 3
/* Words under the tag of a request: header, trailer and names; and under that of a FEEDBACK. */
#define REQUEST_WORDS 14
#define FEEDBACK_WORDS 11

struct router router;

/* Servers, and whoever else only user space deals with, by address: the index, or NOBODY. */
struct map peers SEC("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct peer), 4, 2 * SERVERS_MAX, 0 };

/* AF_XDP sockets of the user-space router, by queue. */
struct map sockets SEC("maps") = { BPF_MAP_TYPE_XSKMAP, 4, 4, QUEUES_MAX, 0 };

/* Sessions that user space has found to be in order. */
struct map sessions SEC("maps") = {
    BPF_MAP_TYPE_LRU_HASH, sizeof(struct session_key), sizeof(struct session), SESSIONS_MAX, 0
};

/* What follows from the seal of a request. */
struct sealed {
    __u64 words[REQUEST_WORDS];
    const __u64 *router_key; /* 0 of an open one */
    __u64 id, before, mark; /* its slot's index, what was there, what is */
};

INLINE int count(enum count what, int verdict)
{
    router.counts[bpf_get_smp_processor_id() & (CPUS_MAX - 1)][what]++;
    return verdict;
}

#define UP(what) count(what, XDP_PASS)
#define DROP(what) count(what, XDP_DROP)

/* SplitMix64, as Draws in crates/placement/src/policy/draws.rs. */
INLINE __u64 word(__u64 *state)
{
    __u64 z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

INLINE __u32 below(__u64 *state, __u32 limit)
{
    return ((word(state) >> 32) * limit) >> 32;
}

INLINE __u64 read_slots(const struct server *server)
{
    return *(volatile const __u64 *)&server->slots;
}

INLINE __u32 outstanding(__u64 slots)
{
    return (__u32)(slots >> 32) - (__u32)slots;
}

/* The loop below has no branch but its end, which reads `len` for itself: of every other the verifier would
 * follow both ways, all combinations of them, to the last instruction. */
INLINE __u32 read_len(void)
{
    __u32 len = *(volatile __u32 *)&router.len;
    return len < SERVERS_MAX ? len : SERVERS_MAX;
}

/* All ones where a is below b, else 0; neither is above 2^62. */
INLINE __u64 is_below(__u64 a, __u64 b)
{
    __u64 mask = (__s64)(a - b) >> 63;
    HIDE(mask);
    return mask;
}

/* A number of which the verifier knows nothing, so that all ends of a loop look alike to it. */
INLINE __u64 forget(__u64 number)
{
    return number + *(volatile __u64 *)&router.zero;
}

/* Where only the bits of `mask` count. */
INLINE __u32 load_of(__u32 index, __u32 mask)
{
    const struct server *server = &router.servers[index & (SERVERS_MAX - 1)];
    return (outstanding(read_slots(server)) & mask) | (server->is_in_service - 1);
}

/* The server of a rank among those in service. */
INLINE __u32 in_service(__u32 rank)
{
    return router.in_service[rank & (SERVERS_MAX - 1)];
}

INLINE __u32 choose_random(__u64 random)
{
    __u32 all = router.in_service_len;
    return all ? in_service(below(&random, all)) : NOBODY;
}

INLINE __u32 choose_jsq2(__u64 random)
{
    __u32 all = router.in_service_len;
    if (all < 2)
        return choose_random(random);
    __u64 pair = word(&random);
    __u32 first = ((pair >> 32) * all) >> 32, second = ((pair & 0xffffffff) * (all - 1)) >> 32;
    second = in_service(second + (second >= first));
    first = in_service(first);
    __u32 one = load_of(first, ~0u), other = load_of(second, ~0u);
    if (other < one)
        return second;
    return other == one && below(&random, 2) == 0 ? second : first;
}

/* The one with the fewest outstanding below the bound, of several the first in the circle that begins after the last
 * placement. Without a bound, the first of the circle in service. */
INLINE __u32 choose_in_turn(__u32 bound)
{
    __u32 len = read_len(), next = router.next;
    __u64 start = forget(next < len ? next : 0), best = (__u64)bound << 8;
    /* In turn alone, whoever is in service is as good as another. */
    __u32 mask = ~is_below(OUT_OF_SERVICE - 1, bound);
    LOOP
    for (__u32 i = 0; i < SERVERS_MAX && i < len; i++) {
        __u64 turn = i - start;
        turn += len & is_below(turn, 0);
        __u64 key = (__u64)load_of(i, mask) << 8 | turn;
        best += (key - best) & is_below(key, best);
    }
    best = forget(best);
    if (best >= (__u64)bound << 8)
        return NOBODY;
    __u32 index = start + (best & 0xff);
    return index < read_len() ? index : index - read_len();
}

INLINE __u32 choose(__u32 policy, __u32 bound, __u64 random)
{
    if (policy == POLICY_RANDOM)
        return choose_random(random);
    if (policy == POLICY_JSQ2)
        return choose_jsq2(random);
    return choose_in_turn(bound);
}

/* Takes a place; false where others have taken the last meanwhile. */
INLINE int take(struct server *server, __u32 bound, __u32 *placement)
{
    __u64 slots = read_slots(server);
    LOOP
    for (int i = 0; i < 8; i++) {
        if (outstanding(slots) >= bound)
            return 0;
        __u64 before = __sync_val_compare_and_swap(&server->slots, slots, slots + (1ull << 32));
        if (before == slots) {
            *placement = (__u32)(slots >> 32) + 1;
            return 1;
        }
        slots = before;
    }
    return 0;
}

/* The ones' complement sum of words, for a checksum: without the old, with the new. */
INLINE __u64 swap(__u64 sum, __u32 old, __u32 new)
{
    return sum + (__u32)~old + new;
}

/* Writes server and placement into the packet. */
INLINE void rewrite(struct frame *f, struct r2p2_route *route, const struct server *server, __u32 placement)
{
    const __u32 *to = (const __u32 *)server->ip;
    __u16 *state = (__u16 *)&route->routed, old_state = *state;
    __u64 sum = 0;

    if (!f->is_ipv6) {
        sum = swap(0, f->ip4->daddr, to[3]);
        f->ip4->check = fold(sum + (__u16)~f->ip4->check);
        f->ip4->daddr = to[3];
    } else {
        for (int i = 0; i < 4; i++) {
            sum = swap(sum, f->ip6->daddr.in6_u.u6_addr32[i], to[i]);
            f->ip6->daddr.in6_u.u6_addr32[i] = to[i];
        }
    }
    route->routed = 1;
    sum = swap(sum, f->udp->dest, server->port);
    sum = swap(sum, old_state, *state);
    sum = swap(sum, route->placement, bpf_htonl(placement));
    f->udp->dest = server->port;
    route->placement = bpf_htonl(placement);
    /* Over IPv4, 0 says that there is none. */
    if (f->udp->check || f->is_ipv6)
        f->udp->check = fold_udp(sum + (__u16)~f->udp->check);
    __u64 next_hop = server->next_hop, source = server->source;
    __builtin_memcpy(f->eth->h_dest, &next_hop, ETH_ALEN);
    __builtin_memcpy(f->eth->h_source, &source, ETH_ALEN);
}

INLINE int is_held(void)
{
    __u64 until = *(volatile __u64 *)&router.held_until;
    return until && until > bpf_ktime_get_coarse_ns();
}

/* Takes the slot of an id for a server; false where the id, or another one, has it. */
INLINE int take_id(struct sealed *sealed, __u32 index)
{
    __u64 *slot = &router.ids[sealed->id & (IDS_LEN - 1)], before = *(volatile __u64 *)slot;
    __u32 now = bpf_ktime_get_coarse_ns() >> ID_UNIT;
    if (before && (((__u32)(before >> 6) - now) & ID_TIME_MASK) < ID_TIME_MAX)
        return 0;
    sealed->before = before;
    sealed->mark |= index;
    return __sync_val_compare_and_swap(slot, before, sealed->mark) == before;
}

/* Seals a request that is otherwise ready for its server. */
INLINE void retag(struct frame *f, struct r2p2_route *route, const struct server *server, struct sealed *sealed)
{
    __u64 *at = f->trailer + TRAILER_LEN - 8;
    sealed->words[8] = *(__u64 *)((void *)route + 16);
    sealed->words[12] = server->name;
    sealed->words[13] = server->alias;
    __u64 old = *at, new = siphash(sealed->router_key, sealed->words, REQUEST_WORDS);
    *at = new;
    if (!f->udp->check && !f->is_ipv6)
        return;
    __u64 sum = swap(swap(0, old, new), old >> 32, new >> 32);
    /* Behind an odd number of bytes each is the other half of its word. */
    __u16 folded = ~fold(sum);
    if (f->len & 1)
        folded = folded << 8 | folded >> 8;
    f->udp->check = fold_udp((__u64)folded + (__u16)~f->udp->check);
}

INLINE int place(struct frame *f, struct r2p2_route *route, struct sealed *sealed)
{
    __u32 policy = router.policy, index, placement;
    if (!is_answerable(f))
        return DROP(DROP_STRANGER);
    __u32 bound = forget(policy == POLICY_JBSQ ? router.bound : OUT_OF_SERVICE);
    if (policy == POLICY_NONE)
        return UP(UP_OFF);
    if (is_held())
        return UP(UP_HELD);
    __u64 random = 0;
    if (router.is_random_set)
        random = router.random;
    else if (policy == POLICY_RANDOM || policy == POLICY_JSQ2)
        random = bpf_get_prandom_u32();
    index = choose(policy, bound, random);
    if (index >= SERVERS_MAX)
        return policy == POLICY_JBSQ ? UP(UP_FULL) : UP(UP_OFF);
    struct server *server = &router.servers[index];
    if (server->next_hop >> 48 != (NEXT_HOP_KNOWN >> 48 | f->tag))
        return UP(UP_UNRESOLVED);
    if (sealed->router_key) {
        if (!server->name)
            return UP(UP_UNRESOLVED);
        if (!take_id(sealed, index))
            return UP(UP_KNOWN);
    }
    if (!take(server, bound, &placement)) {
        if (sealed->router_key)
            __sync_val_compare_and_swap(&router.ids[sealed->id & (IDS_LEN - 1)], sealed->mark, sealed->before);
        return UP(UP_FULL);
    }
    if (policy == POLICY_RR || policy == POLICY_JBSQ)
        router.next = index + 1;
    rewrite(f, route, server, placement);
    if (sealed->router_key)
        retag(f, route, server, sealed);
    if (server->interface == f->interface)
        return count(PLACED, XDP_TX);
    return count(PLACED, bpf_redirect(server->interface, 0));
}

/* A number for an id of a client, as `id_hash` in crates/net/src/ebpf/router/seal.rs. */
INLINE __u64 id_hash(__u64 rpc_id, __u32 client)
{
    __u64 z = rpc_id ^ router.id_secret;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull + client * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* The key of an epoch whose packets are taken. */
INLINE const struct epoch *find_epoch(__u8 number)
{
    const struct epoch *epoch = &router.epochs[number & (EPOCHS_LEN - 1)];
    return epoch->is_used && epoch->number == number ? epoch : 0;
}

INLINE int is_from(const struct frame *f, const struct session *session)
{
    const __u32 *ip = (const __u32 *)session->ip;
    if (session->port != f->udp->source)
        return 0;
    if (!f->is_ipv6)
        return ip[3] == f->ip4->saddr;
    return is_same(ip, &f->ip6->saddr);
}

/* Authenticates a request, as RouterSeal in crates/proto/src/sealed/router.rs; ON if it may be placed. */
INLINE int admit(struct frame *f, struct r2p2_request_header *header, struct sealed *sealed)
{
    const __be32 *trailer = f->trailer;
    __u32 high = bpf_ntohl(trailer[4]);
    __u64 rpc_id = bpf_be64_to_cpu(header->rpc_id);
    const struct epoch *epoch = find_epoch(high);
    struct session_key key = {
        .sender = (__u32)(high << 24 | high >> 8), .session = rpc_id >> R2P2_RPC_ID_SEQUENCE_BITS
    };
    struct session *session = bpf_map_lookup_elem(&sessions, &key);
    if (!epoch || !session)
        return UP(UP_SESSION);
    __u64 began_ms = epoch->from_ms + bpf_ntohl(trailer[5]);
    if (session->began_ms != began_ms || !is_from(f, session))
        return UP(UP_SESSION);
    for (int i = 0; i < 9; i++)
        sealed->words[i] = ((const __u64 *)header)[i];
    for (int i = 0; i < 3; i++)
        sealed->words[9 + i] = ((const __u64 *)trailer)[i];
    sealed->words[12] = router.name;
    sealed->words[13] = 0;
    __u64 tag = ((const __u64 *)trailer)[3];
    if (siphash(session->hop_key, sealed->words, REQUEST_WORDS) != tag) {
        sealed->words[12] = 0;
        return siphash(session->hop_key, sealed->words, REQUEST_WORDS) == tag ? UP(UP_SESSION) : DROP(DROP_FORGED);
    }
    __u64 now = bpf_ktime_get_coarse_ns(), wall_ms = (router.wall_zero_ns + now) / 1000000;
    __u64 sent_ms = began_ms + bpf_ntohl(header->client_clock_us) / 1000, tolerance_ms = router.tolerance_ms;
    __u64 left_ms = bpf_ntohl(header->deadline_us) / 1000;
    if (!header->deadline_us || left_ms > router.lifetime_ms)
        left_ms = router.lifetime_ms;
    if (wall_ms > sent_ms + left_ms + tolerance_ms)
        return DROP(DROP_OUTDATED);
    __u32 floor = bpf_ntohl(header->floor);
    if ((rpc_id & ((1 << R2P2_RPC_ID_SEQUENCE_BITS) - 1)) < session->floor)
        return DROP(DROP_REPLAYED);
    /* What is late may be older than the router, and what is early than its clock. */
    __u64 until = (left_ms + 2 * tolerance_ms) * 1000000 + router.transit_ns;
    until = (until >> ID_UNIT) + 2;
    if (wall_ms > sent_ms + tolerance_ms || sent_ms > wall_ms + tolerance_ms || until >= ID_TIME_MAX)
        return UP(UP_SESSION);
    if (floor > session->floor)
        session->floor = floor;
    __u64 hash = id_hash(rpc_id, high >> 8);
    sealed->router_key = epoch->router_key;
    sealed->id = hash;
    sealed->mark = (hash & ~0xffffffffull) | (((now >> ID_UNIT) + until) & ID_TIME_MASK) << 6;
    return ON;
}

/* A request with the extension, whose first 8 bytes are in order. */
INLINE int request(struct frame *f, struct r2p2_request_header *header)
{
    struct r2p2_base_header *base = &header->base;
    if (!(base->flags & R2P2_POSITION_FIRST))
        return DROP(DROP_NOT_FIRST);
    /* User space counts one without a route block as malformed. */
    struct r2p2_route *route = (void *)(header + 1);
    if (base->header_size != R2P2_ROUTED_LEN || (void *)(route + 1) > f->end)
        return UP(UP_OPTIONS);
    if (base->flags != R2P2_POSITION_ONLY || f->len > router.packet_len_max)
        return UP(UP_SEVERAL);
    __u32 message_len = bpf_ntohl(header->message_len);
    if (message_len > bpf_ntohs(header->segment_len) || f->len != R2P2_ROUTED_LEN + message_len)
        return DROP(DROP_LENGTH);
    if (header->flags & R2P2_FLAGS_RETRANSMIT)
        return UP(UP_RETRANSMIT);
    __u64 *client_ip = (__u64 *)route->client_ip;
    if (header->flags & (R2P2_FLAGS_CLONE | R2P2_FLAGS_MOVED) || client_ip[0] | client_ip[1] |
        route->client_port | route->routed | route->returns ||
        (base->type_policy & 15) != R2P2_POLICY_UNRESTRICTED)
        return UP(UP_OPTIONS);
    struct sealed sealed = { .router_key = 0 };
    if (router.is_sealed) {
        int verdict = admit(f, header, &sealed);
        if (verdict != ON)
            return verdict;
    }
    return place(f, route, &sealed);
}

/* Who has sent it, by its index among the servers, or NOBODY that user space alone deals with; NULL for a stranger. */
INLINE __u32 *find_peer(struct frame *f)
{
    struct peer peer = { .port = f->udp->source };
    __u32 *ip = (__u32 *)peer.ip;
    if (!f->is_ipv6) {
        ip[2] = bpf_htonl(0xffff);
        ip[3] = f->ip4->saddr;
    } else {
        __builtin_memcpy(ip, &f->ip6->saddr, sizeof(peer.ip));
    }
    return bpf_map_lookup_elem(&peers, &peer);
}

/* Asks the kernel's tables for the way to a server, where it was long ago. */
INLINE void resolve(struct xdp_md *context, struct frame *f, struct server *server)
{
    __u64 now = bpf_ktime_get_coarse_ns(), next_hop = 0;
    if (server->resolved_at == FIXED || (server->next_hop && now - server->resolved_at < RESOLVE_NS))
        return;
    struct bpf_fib_lookup way = { .ifindex = f->interface };
    if (!f->is_ipv6) {
        way.family = AF_INET;
        way.ipv4_src = f->ip4->daddr;
        way.ipv4_dst = f->ip4->saddr;
    } else {
        way.family = AF_INET6;
        __builtin_memcpy(way.ipv6_src, &f->ip6->daddr, sizeof(way.ipv6_src));
        __builtin_memcpy(way.ipv6_dst, &f->ip6->saddr, sizeof(way.ipv6_dst));
    }
    server->fib = bpf_fib_lookup(context, &way, sizeof(way), 0);
    if (server->fib == BPF_FIB_LKUP_RET_SUCCESS) {
        __u64 source = 0;
        __builtin_memcpy(&next_hop, way.dmac, ETH_ALEN);
        __builtin_memcpy(&source, way.smac, ETH_ALEN);
        next_hop |= NEXT_HOP_KNOWN | (__u64)f->tag << 48;
        server->source = source;
        /* The route names an interface for the VLAN; frames leave by the one below it, tagged. */
        server->interface = f->tag ? f->interface : way.ifindex;
    }
    server->resolved_at = now;
    server->next_hop = next_hop;
}

/* Takes the counts of a FEEDBACK, if they go on from those that are known. */
INLINE int take_counts(struct server *server, const struct r2p2_feedback_body *body)
{
    __u32 received = bpf_ntohl(body->received), concluded = bpf_ntohl(body->concluded);
    __u32 seen = bpf_ntohl(body->placement_seen), at_server = received - concluded;
    __u64 counts = *(volatile __u64 *)&server->counts;
    __u32 known_at_server = (__u32)(counts >> 32) - (__u32)counts;
    if (!server->is_known || server->epoch != bpf_ntohl(body->epoch) || at_server > router.at_server_max ||
        (__s32)(received - (__u32)(counts >> 32)) < 0 || (__s32)(concluded - (__u32)counts) < 0)
        return 0;
    __u64 slots = read_slots(server);
    LOOP
    for (int i = 0; i < 8; i++) {
        __u32 placed = slots >> 32, known_seen = (__u32)slots + known_at_server;
        if ((__s32)(seen - known_seen) < 0 || placed - seen > router.in_flight_max)
            return 0;
        __u64 next = (slots & ~0xffffffffull) | (__u32)(seen - at_server);
        __u64 before = __sync_val_compare_and_swap(&server->slots, slots, next);
        if (before == slots) {
            *(volatile __u64 *)&server->counts = (__u64)received << 32 | concluded;
            return 1;
        }
        slots = before;
    }
    return 0;
}

/* Authenticates a FEEDBACK, as Servers::hear in crates/proto/src/sealed/neighbours.rs; ON if its counts may be taken. */
INLINE int hear(const __u64 *words, const struct server *server, __u64 *time)
{
    __u32 high = bpf_ntohl(*(const __be32 *)&words[10]);
    const struct epoch *epoch = find_epoch(high);
    __u64 covered[FEEDBACK_WORDS];
    if (!epoch)
        return UP(UP_FEEDBACK);
    for (int i = 0; i < FEEDBACK_WORDS; i++)
        covered[i] = words[i];
    if (siphash(epoch->router_key, covered, FEEDBACK_WORDS) != words[FEEDBACK_WORDS])
        return DROP(DROP_FORGED);
    /* The last byte of a sender's name is its thread. */
    if (!server->name || (covered[8] & ~(0xffull << 56)) != server->name || covered[9] != server->alias)
        return UP(UP_FEEDBACK);
    *time = (__u64)(high >> 8) << 32 | bpf_ntohl(((const __be32 *)&words[10])[1]);
    return *time <= *(volatile __u64 *)&server->heard ? DROP(DROP_REPLAYED) : ON;
}

INLINE int feedback(struct xdp_md *context, struct frame *f, struct r2p2_reply_header *header)
{
    struct r2p2_feedback_body *body = (void *)(header + 1);
    if (f->len != sizeof(*header) + sizeof(*body) || (void *)(body + 1) > f->end)
        return DROP(DROP_LENGTH);
    __u32 *index = find_peer(f);
    if (!index)
        return DROP(DROP_STRANGER);
    if (*index >= SERVERS_MAX)
        return UP(UP_FEEDBACK);
    struct server *server = &router.servers[*index];
    __u64 time = 0;
    if (router.is_sealed) {
        if ((void *)(body + 1) + TRAILER_LEN > f->end)
            return DROP(DROP_TRUNCATED);
        int verdict = hear((const __u64 *)header, server, &time);
        if (verdict != ON)
            return verdict;
    }
    resolve(context, f, server);
    /* A server that stops, and a router that stands for several, are user space's. */
    if (header->flags & R2P2_FLAGS_STOPPING || bpf_ntohl(header->detail) > 1 || !take_counts(server, body))
        return UP(UP_FEEDBACK);
    server->load = (__u32)bpf_ntohs(header->server_load) << 16 | bpf_ntohs(header->server_waiting);
    __sync_fetch_and_add(&server->reports, 1);
    /* After the counts, as user space reads the counts after it has said that it holds something. */
    if (is_held() || (server->is_wanted && __sync_lock_test_and_set(&server->is_wanted, 0))) {
        server->passed = time;
        return UP(UP_FEEDBACK);
    }
    server->heard = time;
    return DROP(FEEDBACK_TAKEN);
}

/* Splits a sealed packet; ON where it has the form of one. */
INLINE int find_trailer(struct frame *f, struct r2p2_base_header *base, __u8 version, __u32 type)
{
    __u32 is_clients = type == R2P2_MESSAGE_TYPE_REQUEST || type == R2P2_MESSAGE_TYPE_CANCEL;
    if (version == R2P2_EXTENSION_VERSION)
        return DROP(DROP_UNSEALED);
    if (version != (is_clients ? SEALED_VERSION : HOP_VERSION))
        return DROP(DROP_VERSION);
    __u32 open_len = f->len - TRAILER_LEN;
    if (f->len < base->header_size + TRAILER_LEN || open_len > 0x3fff)
        return DROP(DROP_TRUNCATED);
    if (!is_at_hand(f))
        return UP(UP_SEVERAL);
    f->trailer = (void *)base + open_len;
    if (f->trailer + TRAILER_LEN > f->end)
        return DROP(DROP_TRUNCATED);
    f->len = open_len;
    return ON;
}

/* The UDP payload, in the order of Packet::parse. */
INLINE int packet(struct xdp_md *context, struct frame *f)
{
    struct r2p2_base_header *base = (void *)(f->udp + 1);
    struct r2p2_request_header *header = (void *)base;
    if (f->len < sizeof(*base) || (void *)(base + 1) > f->end)
        return DROP(DROP_TRUNCATED);
    if (base->magic != R2P2_MAGIC)
        return DROP(DROP_MAGIC);
    __u32 type = base->type_policy >> 4, order = bpf_ntohs(base->p_order);
    if (type > R2P2_MESSAGE_TYPE_DROP && type < R2P2_MESSAGE_TYPE_CLAIMED)
        return DROP(DROP_TYPE);
    if (!router.is_sealed && type == R2P2_MESSAGE_TYPE_FEEDBACK && f->len == sizeof(*base) + sizeof(struct r2p2_feedback_v1))
        return find_peer(f) ? UP(UP_FEEDBACK) : DROP(DROP_STRANGER);
    if ((base->type_policy & 15) > R2P2_POLICY_FIXED)
        return DROP(DROP_POLICY);
    if (base->flags & ~R2P2_POSITION_ONLY)
        return DROP(DROP_FLAGS);
    if (base->header_size == R2P2_BASE_LEN)
        return router.is_sealed ? DROP(DROP_UNSEALED) : UP(UP_OPTIONS);
    if (base->header_size != R2P2_EXTENDED_LEN && base->header_size != R2P2_ROUTED_LEN)
        return DROP(DROP_HEADER_SIZE);
    if (f->len < base->header_size || (void *)(header + 1) > f->end)
        return DROP(DROP_TRUNCATED);
    if (router.is_sealed) {
        int verdict = find_trailer(f, base, header->version, type);
        if (verdict != ON)
            return verdict;
    } else if (header->version != R2P2_EXTENSION_VERSION) {
        return DROP(DROP_VERSION);
    }
    int is_only = base->flags == R2P2_POSITION_ONLY;
    if (order == 0 || (base->flags & R2P2_POSITION_FIRST && is_only != (order == 1)))
        return DROP(DROP_ORDER);
    switch (type) {
    case R2P2_MESSAGE_TYPE_REQUEST:
        return request(f, header);
    case R2P2_MESSAGE_TYPE_FEEDBACK:
        if (base->header_size != R2P2_EXTENDED_LEN || !is_only)
            return DROP(DROP_ORDER);
        return feedback(context, f, (void *)header);
    case R2P2_MESSAGE_TYPE_ACK:
    case R2P2_MESSAGE_TYPE_CLAIMED:
    case R2P2_MESSAGE_TYPE_PROBE:
    case R2P2_MESSAGE_TYPE_CLAIM:
        return find_peer(f) ? UP(UP_CONTROL) : DROP(DROP_STRANGER);
    case R2P2_MESSAGE_TYPE_CANCEL:
        return UP(UP_CONTROL);
    default:
        return DROP(DROP_UNEXPECTED);
    }
}

SEC("xdp.frags")
int route(struct xdp_md *context)
{
    struct frame f = { .interface = context->ingress_ifindex };
    enum whose is_for = find(context, &f) ? whose(&f, router.ip, router.is_ipv4, router.port) : ANOTHERS;
    if (is_for != OURS)
        return UP(is_for == OURS_ODD ? UP_IP : OTHERS);
    if (!is_whole(context, &f))
        return DROP(DROP_TRUNCATED);
    int verdict = packet(context, &f);
    /* At a queue without a socket it is passed on; and what has several buffers, which the kernel puts together. */
    if (verdict != XDP_PASS || !is_at_hand(&f))
        return verdict;
    return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
