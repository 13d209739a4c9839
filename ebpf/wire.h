/* Headers and numbers of R2P2 and NetClone. Written by `cargo xtask ebpf` from crates/wire. */
#ifndef TAILCUT_WIRE_H
#define TAILCUT_WIRE_H

#include <linux/types.h>

enum {
    R2P2_BASE_LEN = 8,
    R2P2_EXTENDED_LEN = 48,
    R2P2_EXTENSION_VERSION = 1,
    R2P2_MAGIC = 204,
    R2P2_ROUTED_LEN = 72,
    R2P2_V1_FIRST_LEN = 14,
    R2P2_V1_PACKETS_MAX = 254,
    R2P2_V1_SEGMENT_LEN = 1464,
};

enum {
    R2P2_POSITION_FIRST = 128,
    R2P2_POSITION_LAST = 64,
    R2P2_POSITION_ONLY = 192,
};

struct r2p2_base_header {
    __u8 magic;
    __u8 header_size;
    __u8 type_policy;
    __u8 flags;
    __be16 rid;
    __be16 p_order;
};
_Static_assert(sizeof(struct r2p2_base_header) == 8, "as in crates/wire");

struct r2p2_request_header {
    struct r2p2_base_header base;
    __be64 rpc_id;
    __be32 message_len;
    __u8 flags;
    __u8 version;
    __be16 reserved;
    __be32 client_clock_us;
    __be32 deadline_us;
    __be64 token;
    __be32 floor;
    __be16 segment_len;
    __be16 age_ms;
};
_Static_assert(sizeof(struct r2p2_request_header) == 48, "as in crates/wire");

struct r2p2_reply_header {
    struct r2p2_base_header base;
    __be64 rpc_id;
    __be32 message_len;
    __u8 flags;
    __u8 version;
    __be16 server_load;
    __be32 server_id;
    __be32 clock_echo_us;
    __be64 token;
    __be32 detail;
    __be16 segment_len;
    __be16 server_waiting;
};
_Static_assert(sizeof(struct r2p2_reply_header) == 48, "as in crates/wire");

struct r2p2_route {
    __u8 client_ip[16];
    __be16 client_port;
    __u8 routed;
    __u8 returns;
    __be32 placement;
};
_Static_assert(sizeof(struct r2p2_route) == 24, "as in crates/wire");

enum {
    R2P2_MESSAGE_TYPE_REQUEST = 0,
    R2P2_MESSAGE_TYPE_RESPONSE = 1,
    R2P2_MESSAGE_TYPE_FEEDBACK = 2,
    R2P2_MESSAGE_TYPE_ACK = 3,
    R2P2_MESSAGE_TYPE_DROP = 4,
    R2P2_MESSAGE_TYPE_CLAIMED = 11,
    R2P2_MESSAGE_TYPE_REPLY_ACK = 12,
    R2P2_MESSAGE_TYPE_CANCEL = 13,
    R2P2_MESSAGE_TYPE_PROBE = 14,
    R2P2_MESSAGE_TYPE_CLAIM = 15,
};

enum {
    R2P2_POLICY_UNRESTRICTED = 0,
    R2P2_POLICY_FIXED = 1,
};

enum {
    R2P2_FLAGS_CLONE = 12,
    R2P2_FLAGS_COOKIE = 64,
    R2P2_FLAGS_HELD = 128,
    R2P2_FLAGS_IDEMPOTENT = 1,
    R2P2_FLAGS_LONG = 32,
    R2P2_FLAGS_MOVED = 128,
    R2P2_FLAGS_RESEND = 16,
    R2P2_FLAGS_RESEND_TAIL = 32,
    R2P2_FLAGS_RETRANSMIT = 2,
    R2P2_FLAGS_STOPPING = 64,
    R2P2_FLAGS_UNSCHEDULED = 16,
};

enum {
    R2P2_RPC_ID_SEQUENCE_BITS = 24,
};

struct r2p2_sack_body {
    __be16 base;
    __be16 granted;
    __u8 bitmap[32];
};
_Static_assert(sizeof(struct r2p2_sack_body) == 36, "as in crates/wire");

struct r2p2_feedback_body {
    __be32 epoch;
    __be32 placement_seen;
    __be32 received;
    __be32 concluded;
};
_Static_assert(sizeof(struct r2p2_feedback_body) == 16, "as in crates/wire");

struct r2p2_claim_body {
    __u8 client_ip[16];
    __be16 client_port;
};
_Static_assert(sizeof(struct r2p2_claim_body) == 18, "as in crates/wire");

enum {
    R2P2_VERDICT_UNCERTAIN = 0,
    R2P2_VERDICT_RENOUNCED = 1,
    R2P2_VERDICT_SEEN = 2,
};

struct r2p2_feedback_v1 {
    __be16 rid;
    __be16 client_port;
    __u8 client_ip[4];
};
_Static_assert(sizeof(struct r2p2_feedback_v1) == 8, "as in crates/wire");

enum {
    R2P2_DROP_REASON_UNSPECIFIED = 0,
    R2P2_DROP_REASON_OVERLOAD = 1,
    R2P2_DROP_REASON_TOO_LARGE = 2,
    R2P2_DROP_REASON_TOO_OLD = 3,
    R2P2_DROP_REASON_EXPIRED = 4,
    R2P2_DROP_REASON_NO_SERVER = 5,
    R2P2_DROP_REASON_APPLICATION = 6,
    R2P2_DROP_REASON_UNCERTAIN = 7,
    R2P2_DROP_REASON_UNVALIDATED = 8,
    R2P2_DROP_REASON_PANICKED = 9,
    R2P2_DROP_REASON_STOPPING = 10,
    R2P2_DROP_REASON_UNANSWERED = 11,
    R2P2_DROP_REASON_NO_KEY = 12,
};

enum {
    R2P2_REJECTION_PREFIX_LEN = 5,
    R2P2_REJECTION_TEXT_LEN_MAX = 1024,
};

enum {
    NETCLONE_C_CLONE_LEN = 36,
    NETCLONE_HEADER_LEN = 28,
    NETCLONE_NO_CLONE_LEN = 32,
    NETCLONE_PLAIN_PORT = 2000,
    NETCLONE_PORT = 1000,
    NETCLONE_SEQ_MAX = 100000000,
    NETCLONE_SERVERS_MAX = 16,
    NETCLONE_TRAILER_LEN = 24,
};

struct netclone_header {
    __be32 op;
    __be32 seq;
    __be32 grp;
    __be32 sid;
    __be32 load;
    __be32 clo;
    __be32 tidx;
};
_Static_assert(sizeof(struct netclone_header) == 28, "as in crates/wire");

enum {
    NETCLONE_OP_REQUEST = 0,
    NETCLONE_OP_RESPONSE = 1,
};

enum {
    NETCLONE_CLONE_MARK_SINGLE = 0,
    NETCLONE_CLONE_MARK_ORIGINAL = 1,
    NETCLONE_CLONE_MARK_CLONE = 2,
};

#endif
