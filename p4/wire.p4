/* Headers and numbers of R2P2 and NetClone. Written by `cargo xtask p4` from crates/wire. */
#ifndef TAILCUT_WIRE_P4
#define TAILCUT_WIRE_P4

#define R2P2_BASE_LEN 8
#define R2P2_EXTENDED_LEN 48
#define R2P2_EXTENSION_VERSION 1
#define R2P2_MAGIC 204
#define R2P2_ROUTED_LEN 72
#define R2P2_V1_FIRST_LEN 14
#define R2P2_V1_PACKETS_MAX 254
#define R2P2_V1_SEGMENT_LEN 1464

#define R2P2_POSITION_FIRST 128
#define R2P2_POSITION_LAST 64
#define R2P2_POSITION_ONLY 192

header r2p2_base_header_t {
    bit<8> magic;
    bit<8> header_size;
    bit<8> type_policy;
    bit<8> flags;
    bit<16> rid;
    bit<16> p_order;
}

header r2p2_request_header_t {
    bit<64> rpc_id;
    bit<32> message_len;
    bit<8> flags;
    bit<8> version;
    bit<16> reserved;
    bit<32> client_clock_us;
    bit<32> deadline_us;
    bit<64> token;
    bit<32> floor;
    bit<16> segment_len;
    bit<16> age_ms;
}

header r2p2_reply_header_t {
    bit<64> rpc_id;
    bit<32> message_len;
    bit<8> flags;
    bit<8> version;
    bit<16> server_load;
    bit<32> server_id;
    bit<32> clock_echo_us;
    bit<64> token;
    bit<32> detail;
    bit<16> segment_len;
    bit<16> server_waiting;
}

header r2p2_route_t {
    bit<128> client_ip;
    bit<16> client_port;
    bit<8> routed;
    bit<8> returns;
    bit<32> placement;
}

#define R2P2_MESSAGE_TYPE_REQUEST 0
#define R2P2_MESSAGE_TYPE_RESPONSE 1
#define R2P2_MESSAGE_TYPE_FEEDBACK 2
#define R2P2_MESSAGE_TYPE_ACK 3
#define R2P2_MESSAGE_TYPE_DROP 4
#define R2P2_MESSAGE_TYPE_CLAIMED 11
#define R2P2_MESSAGE_TYPE_REPLY_ACK 12
#define R2P2_MESSAGE_TYPE_CANCEL 13
#define R2P2_MESSAGE_TYPE_PROBE 14
#define R2P2_MESSAGE_TYPE_CLAIM 15

#define R2P2_POLICY_UNRESTRICTED 0
#define R2P2_POLICY_FIXED 1

#define R2P2_FLAGS_CLONE 12
#define R2P2_FLAGS_COOKIE 64
#define R2P2_FLAGS_HELD 128
#define R2P2_FLAGS_IDEMPOTENT 1
#define R2P2_FLAGS_LONG 32
#define R2P2_FLAGS_MOVED 128
#define R2P2_FLAGS_RESEND 16
#define R2P2_FLAGS_RESEND_TAIL 32
#define R2P2_FLAGS_RETRANSMIT 2
#define R2P2_FLAGS_STOPPING 64
#define R2P2_FLAGS_UNSCHEDULED 16

#define R2P2_RPC_ID_SEQUENCE_BITS 24

header r2p2_sack_body_t {
    bit<16> base;
    bit<16> granted;
    bit<256> bitmap;
}

header r2p2_feedback_body_t {
    bit<32> epoch;
    bit<32> placement_seen;
    bit<32> received;
    bit<32> concluded;
}

header r2p2_claim_body_t {
    bit<128> client_ip;
    bit<16> client_port;
}

#define R2P2_VERDICT_UNCERTAIN 0
#define R2P2_VERDICT_RENOUNCED 1
#define R2P2_VERDICT_SEEN 2

header r2p2_feedback_v1_t {
    bit<16> rid;
    bit<16> client_port;
    bit<32> client_ip;
}

#define R2P2_DROP_REASON_UNSPECIFIED 0
#define R2P2_DROP_REASON_OVERLOAD 1
#define R2P2_DROP_REASON_TOO_LARGE 2
#define R2P2_DROP_REASON_TOO_OLD 3
#define R2P2_DROP_REASON_EXPIRED 4
#define R2P2_DROP_REASON_NO_SERVER 5
#define R2P2_DROP_REASON_APPLICATION 6
#define R2P2_DROP_REASON_UNCERTAIN 7
#define R2P2_DROP_REASON_UNVALIDATED 8
#define R2P2_DROP_REASON_PANICKED 9
#define R2P2_DROP_REASON_STOPPING 10
#define R2P2_DROP_REASON_UNANSWERED 11
#define R2P2_DROP_REASON_NO_KEY 12

#define R2P2_REJECTION_PREFIX_LEN 5
#define R2P2_REJECTION_TEXT_LEN_MAX 1024

#define NETCLONE_C_CLONE_LEN 36
#define NETCLONE_HEADER_LEN 28
#define NETCLONE_NO_CLONE_LEN 32
#define NETCLONE_PLAIN_PORT 2000
#define NETCLONE_PORT 1000
#define NETCLONE_SEQ_MAX 100000000
#define NETCLONE_SERVERS_MAX 16
#define NETCLONE_TRAILER_LEN 24

header netclone_header_t {
    bit<32> op;
    bit<32> seq;
    bit<32> grp;
    bit<32> sid;
    bit<32> load;
    bit<32> clo;
    bit<32> tidx;
}

#define NETCLONE_OP_REQUEST 0
#define NETCLONE_OP_RESPONSE 1

#define NETCLONE_CLONE_MARK_SINGLE 0
#define NETCLONE_CLONE_MARK_ORIGINAL 1
#define NETCLONE_CLONE_MARK_CLONE 2

#endif
