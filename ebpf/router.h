/* What the XDP router and the user-space router share, in memory: crates/net/src/ebpf/router/layout.rs has the
 * same offsets. Addresses are 16 bytes, those of IPv4 as ::ffff:a.b.c.d. */
#ifndef TAILCUT_ROUTER_H
#define TAILCUT_ROUTER_H

#include <linux/types.h>

enum {
    SERVERS_MAX = 32,
    /* Two CPUs share counts where there are more, and may lose one. */
    CPUS_MAX = 256,
    /* What comes at others goes up by the kernel's stack. */
    QUEUES_MAX = 64,
    /* Sessions of sealed clients; the least used makes room. */
    SESSIONS_MAX = 1 << 16,
    /* Ids of sealed requests. */
    IDS_LEN = 1 << 20,
    EPOCHS_LEN = 4,
};

enum policy {
    POLICY_NONE, /* everything goes up */
    POLICY_RANDOM,
    POLICY_RR,
    POLICY_JSQ2,
    POLICY_JBSQ,
};

/* What becomes of packets to the router's address. What goes up goes on to the user-space router's socket. */
enum count {
    PLACED,
    FEEDBACK_TAKEN,
    /* Up, for XDP does not place them: */
    UP_FULL,       /* no server may take one more */
    UP_HELD,       /* others wait in user space */
    UP_OFF,        /* no policy, or no server in service */
    UP_UNRESOLVED, /* the way to the server is not known, or leads through another VLAN */
    UP_RETRANSMIT, /* user space may know it */
    UP_SEVERAL,    /* of several packets, longer than allowed, or sealed and in several buffers */
    UP_OPTIONS,    /* version 1, the fixed policy, a clone mark, MOVED, or a route block in use */
    UP_IP,         /* a fragment, IP options or extension headers */
    UP_CONTROL,    /* CANCEL; ACK, CLAIMED, PROBE and CLAIM of servers */
    UP_FEEDBACK,   /* user space wants it, or it is not the next of what is known */
    UP_SESSION,    /* sealed: of a session that is not known, for nobody, or not of this moment */
    UP_KNOWN,      /* sealed: its id has been placed, or another one has its slot */
    /* Dropped: */
    DROP_TRUNCATED,
    DROP_MAGIC,
    DROP_TYPE,
    DROP_POLICY,
    DROP_FLAGS,
    DROP_HEADER_SIZE,
    DROP_VERSION,
    DROP_ORDER,
    DROP_LENGTH,
    DROP_NOT_FIRST,
    DROP_UNEXPECTED, /* replies, DROPs and REPLY_ACKs */
    DROP_STRANGER,   /* what only servers send, of somebody else; a request of whom no answer reaches */
    DROP_UNSEALED,   /* open, at a sealed router */
    DROP_FORGED,     /* a hop tag is wrong */
    DROP_REPLAYED,   /* its call has ended; or a FEEDBACK that is not later than the last */
    DROP_OUTDATED,   /* its deadline has passed */
    /* Besides: */
    OTHERS, /* packets for somebody else, which go on */
    COUNTS_LEN,
    COUNTS_MAX = 32,
};

/* A server. outstanding = placed - base, where base = seen - (received - concluded) of the last FEEDBACK. */
struct server {
    __u64 slots;       /* placed in the high half, base in the low one */
    __u64 counts;      /* received in the high half, concluded in the low one */
    __u32 epoch;       /* of the last FEEDBACK */
    __u32 load;        /* server_load in the high half, server_waiting in the low one */
    __u32 reports;     /* FEEDBACKs taken */
    __u32 is_wanted;   /* the next goes up as well */
    __u32 is_known;    /* user space has taken one, whose counts may go on */
    __u32 is_in_service; /* 1 or 0 */
    __u64 resolved_at; /* when its way was asked for, ns */
    __u64 next_hop;    /* its Ethernet address in the low 48 bits, then VLAN_...; 0 where it is not known */
    __u64 source;      /* Ethernet address of the interface towards it */
    __u32 interface;   /* number of the interface */
    __u32 fib;         /* BPF_FIB_LKUP_RET_... of the last question */
    __u8 ip[16];
    __be16 port;
    __u16 padding[3];
    __u64 name;        /* sealed: its name, as in packets; 0 where it is not known */
    __u64 alias;       /* sealed: the router's alias there, as in packets */
    __u64 heard;       /* sealed: the time of the last FEEDBACK that was taken here alone */
    __u64 passed;      /* sealed: the time of the last that was taken here and went up */
};
_Static_assert(sizeof(struct server) == 128, "as in layout.rs");

/* An epoch whose packets are taken, at the place of the low bits of its number. */
struct epoch {
    __u64 router_key[2];
    __u64 from_ms;
    __u32 number;
    __u32 is_used;
};

/* A client's session. */
struct session_key {
    __u64 sender;  /* epoch and client */
    __u64 session; /* 40 bits */
};

struct session {
    __u64 hop_key[2];
    __u64 began_ms;
    __u8 ip[16];
    __be16 port; /* with zeros behind */
    __u16 padding;
    __u32 floor; /* its calls below have ended */
};
_Static_assert(sizeof(struct session) == 48, "as in router.rs");

struct router {
    __u8 ip[16];       /* the router's address */
    __be16 port;
    __u16 is_ipv4;
    __u32 policy;
    __u32 bound;
    __u32 len;         /* servers up to the last that is used */
    __u32 next;        /* cursor of rr and jbsq */
    __u32 packet_len_max;
    __u32 in_flight_max;
    __u32 at_server_max;
    __u64 held_until;  /* user space holds requests, and says so again before this time of CLOCK_MONOTONIC */
    __u64 random;      /* the word of the next decision */
    __u32 is_random_set;
    __u32 layout;      /* whose memory this is, by layout.rs; the program does not read it */
    __u64 zero;        /* always */
    /* Of a sealed router: */
    __u32 is_sealed;
    __u32 tolerance_ms;
    __u64 lifetime_ms;
    __u64 transit_ns;
    __u64 wall_zero_ns; /* Unix time at 0 of CLOCK_MONOTONIC */
    __u64 name;        /* the router's, as in packets */
    __u64 id_secret;
    struct epoch epochs[EPOCHS_LEN];
    /* Those in service, by their indices and in their order. */
    __u8 in_service[SERVERS_MAX];
    __u32 in_service_len;
    struct server servers[SERVERS_MAX] __attribute__((aligned(64)));
    __u64 counts[CPUS_MAX][COUNTS_MAX];
    /* Ids that were placed, by their hash: 32 other bits of it, when it may be forgotten (26 bits, in 2^24 ns), and
     * the server's index, or 63 where user space has it. */
    __u64 ids[IDS_LEN];
};
_Static_assert(__builtin_offsetof(struct router, servers) == 320, "as in layout.rs");

/* An address and port: who is at the other end. */
struct peer {
    __u8 ip[16];
    __be16 port;
    __u16 padding;
};

#endif
