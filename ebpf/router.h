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
    UP_SEVERAL,    /* of several packets, or longer than allowed */
    UP_OPTIONS,    /* version 1, the fixed policy, a clone mark, MOVED, or a route block in use */
    UP_IP,         /* a fragment, IP options or extension headers */
    UP_CONTROL,    /* CANCEL; ACK, CLAIMED, PROBE and CLAIM of servers */
    UP_FEEDBACK,   /* user space wants it, or it is not the next of what is known */
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
};
_Static_assert(sizeof(struct server) == 96, "as in layout.rs");

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
    __u32 padding;
    __u64 zero;        /* always */
    struct server servers[SERVERS_MAX];
    __u64 counts[CPUS_MAX][COUNTS_MAX];
};
_Static_assert(__builtin_offsetof(struct router, servers) == 80, "as in layout.rs");

/* An address and port: who is at the other end. */
struct peer {
    __u8 ip[16];
    __be16 port;
    __u16 padding;
};

#endif
