/* What the XDP cloner and user space share: crates/net/src/ebpf/cloner/layout.rs has the same offsets. */
#ifndef TAILCUT_CLONER_H
#define TAILCUT_CLONER_H

#include <linux/types.h>

enum {
    CLONER_SERVERS_MAX = 16,
    /* The pairs of a table by group; at 0 the pair of groups that there are not. */
    GROUPS_MAX = 256,
    FLIGHTS_LEN = 131072,
    FILTER_LEN = 131072,
};

/* What becomes of packets to the switch's address. What goes up goes on to a socket there. */
enum cloner_count {
    CLONER_PLACED, /* on one server or on two */
    CLONER_CLONED,
    CLONER_UNKNOWN_GROUP,
    CLONER_REPLIES_FORWARDED,
    CLONER_CLONES_WON,
    CLONER_FILTER_EVICTED, /* ids whose cell another has taken */
    /* Up: */
    CLONER_UP_UNRESOLVED, /* a server of the pair is out, or has not answered by this interface yet */
    CLONER_UP_IP,         /* a fragment, or IP options */
    CLONER_UP_UNKNOWN,    /* a response to what an earlier run, or user space, has sent */
    /* Dropped: */
    CLONER_DROP_FILTERED, /* the slower of two responses */
    CLONER_DROP_LENGTH,
    CLONER_DROP_OP,
    CLONER_DROP_MARK,
    CLONER_DROP_STRANGER, /* a response of who is not the server that it names, a request of nobody */
    CLONER_DROP_UNKNOWN,  /* a response to a request that is not remembered */
    /* Besides: */
    CLONER_OTHERS,
    CLONER_COUNTS_LEN,
    CLONER_COUNTS_MAX = 16,
};

/* Who is behind the interface: addresses are 16 bytes, those of IPv4 as ::ffff:a.b.c.d. */
struct end {
    __u8 ip[16];
    __be16 port;
    __u16 padding[3];
    __u64 way; /* Ethernet address of the next hop in the low 48 bits, then VLAN_... and the VLAN, or 0 */
};

struct clone_server {
    struct end end;
    __u32 interface; /* where its responses come in; 0 until one has, and where user space waits for one */
    __u32 is_out;    /* user space deals with its pairs */
    __u32 load;      /* what waits there, as it has reported last */
    __u32 asked;     /* requests placed there, without clones. Wraps */
    __u32 answered;  /* responses of this run from there. Wraps */
};
_Static_assert(sizeof(struct clone_server) == 56, "as in layout.rs");

struct pair {
    __u8 first, second;
};

struct cloner {
    __u64 ids; /* given so far, the first of them at random: the last id less what has gone round */
    __u8 ip[16]; /* the switch's address */
    __be16 port;
    __u8 is_ipv4;
    __u8 is_shorter; /* what is not cloned goes to the one where less wait (RackSched) */
    __u32 epoch;      /* the bits of tidx above the lowest, towards servers */
    __u32 filter_mask;
    __u32 servers_len;
    __u32 groups_len;
    struct clone_server servers[CLONER_SERVERS_MAX];
    struct pair pairs[GROUPS_MAX];
    __u64 counts[256][CLONER_COUNTS_MAX];
};
_Static_assert(__builtin_offsetof(struct cloner, counts) == 1456, "as in layout.rs");

/* A request whose responses may come. */
struct flight {
    __u32 seq; /* 0 while this changes */
    __u32 tidx; /* as its client sent it */
    struct end client;
};

#endif
