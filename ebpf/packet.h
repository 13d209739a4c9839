/* What all programs here share: frames and their headers, whom an answer can go to, and checksums. */
#ifndef TAILCUT_PACKET_H
#define TAILCUT_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __attribute__((always_inline)) inline
#define VLAN_TAGGED 0x1000

/* A map as crates/net/src/ebpf/elf.rs reads it. */
struct map {
    __u32 kind, key_bytes, value_bytes, len, flags;
};

struct vlan {
    __be16 tci, protocol;
};

/* A packet of UDP. The pointers are into it. */
struct frame {
    struct ethhdr *eth;
    void *network; /* behind the tag */
    struct iphdr *ip4; /* or, if is_ipv6 */
    struct ipv6hdr *ip6;
    __u32 is_ipv6;
    struct udphdr *udp;
    void *end;
    __u32 len; /* of the UDP payload */
    __u32 tag; /* VLAN_TAGGED and the VLAN, or 0 */
    __u32 interface;
    void *trailer; /* of a sealed packet, whole */
};

/* Finds the network header, behind one tag or none; returns its protocol, or 0. */
INLINE __be16 find_network(const struct xdp_md *context, struct frame *f)
{
    struct vlan *vlan;

    f->eth = (void *)(long)context->data;
    f->end = (void *)(long)context->data_end;
    f->network = vlan = (void *)(f->eth + 1);
    if ((void *)(vlan + 1) > f->end)
        return 0;
    if (f->eth->h_proto != bpf_htons(ETH_P_8021Q))
        return f->eth->h_proto;
    f->tag = VLAN_TAGGED | (bpf_ntohs(vlan->tci) & 0xfff);
    f->network = vlan + 1;
    return vlan->protocol;
}

/* Neither a fragment nor with options. */
INLINE int is_plain(const struct iphdr *ip)
{
    return *(const __u8 *)ip == 0x45 && !(ip->frag_off & bpf_htons(0x3fff));
}

/* Whether the lengths of UDP, of IP behind its header and of the frame agree; sets that of the payload. */
INLINE int is_whole(struct frame *f, __u32 ip_payload)
{
    __u32 len = bpf_ntohs(f->udp->len);

    f->len = len - sizeof(*f->udp);
    return len >= sizeof(*f->udp) && len == ip_payload && len <= (__u64)(f->end - (void *)f->udp);
}

/* Whether an answer can go to the source: neither this host, loopback, a group, nor nobody. The kernel asks so of
 * what goes up. */
INLINE int is_answerable(const struct frame *f)
{
    if (f->is_ipv6) {
        const __be32 *from = f->ip6->saddr.in6_u.u6_addr32, *own = f->ip6->daddr.in6_u.u6_addr32;
        __u32 is_other = (from[0] ^ own[0]) | (from[1] ^ own[1]) | (from[2] ^ own[2]) | (from[3] ^ own[3]);

        return f->udp->source && is_other && (from[0] | from[1]) && *(const __u8 *)from != 0xff;
    }
    __u8 first = *(const __u8 *)&f->ip4->saddr;

    return f->udp->source && f->ip4->saddr != f->ip4->daddr && first && first != 127 && first < 224;
}

/* The checksum of a sum of 16-bit words, or of 32-bit ones. */
INLINE __u16 fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

/* UDP's: 0 would say that there is none. */
INLINE __u16 fold_udp(__u64 sum)
{
    __u16 check = fold(sum);

    return check ? check : 0xffff;
}

#endif
