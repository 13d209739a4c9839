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
#define VLAN_OF_SERVICE 0x2000 /* by an outer tag (802.1ad) */
/* Hides how a value came about, lest clang makes a branch of it. */
#define HIDE(value) asm volatile("" : "+r"(value))

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
    __u32 len; /* of the UDP payload, which may end behind `end`, in another buffer */
    __u32 tag; /* VLAN_... and the VLAN, or 0 */
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
    if (f->eth->h_proto != bpf_htons(ETH_P_8021Q) && f->eth->h_proto != bpf_htons(ETH_P_8021AD))
        return f->eth->h_proto;
    f->tag = VLAN_TAGGED | (bpf_ntohs(vlan->tci) & 0xfff);
    if (f->eth->h_proto == bpf_htons(ETH_P_8021AD))
        f->tag |= VLAN_OF_SERVICE;
    f->network = vlan + 1;
    return vlan->protocol;
}

/* Finds the headers of UDP in IP; false for what is not IP, or ends before they do. */
INLINE int find(const struct xdp_md *context, struct frame *f)
{
    __be16 protocol = find_network(context, f);
    __u32 is_ipv6 = protocol == bpf_htons(ETH_P_IPV6);

    f->ip4 = f->network;
    f->ip6 = f->network;
    f->udp = is_ipv6 ? (void *)(f->ip6 + 1) : (void *)(f->ip4 + 1);
    /* Where it is from, so that clang asks for it and not for that. */
    HIDE(is_ipv6);
    f->is_ipv6 = is_ipv6;
    return (is_ipv6 || protocol == bpf_htons(ETH_P_IP)) && (void *)(f->udp + 1) <= f->end;
}

/* Neither a fragment nor with options. */
INLINE int is_plain(const struct iphdr *ip)
{
    return *(const __u8 *)ip == 0x45 && !(ip->frag_off & bpf_htons(0x3fff));
}

INLINE int is_same(const void *one, const void *other)
{
    const __be32 *a = one, *b = other;

    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]));
}

enum whose {
    ANOTHERS,
    OURS,
    OURS_ODD, /* a fragment, or with options or extension headers: the kernel finds its port */
};

/* Whether a packet is for an address, as 16 bytes. */
INLINE enum whose whose(const struct frame *f, const void *ip, __u32 is_ipv4, __be16 port)
{
    if (f->is_ipv6) {
        __u8 next = f->ip6->nexthdr;

        if (is_ipv4 || !is_same(&f->ip6->daddr, ip) || next == IPPROTO_TCP || next == IPPROTO_ICMPV6)
            return ANOTHERS;
        if (next != IPPROTO_UDP)
            return OURS_ODD;
    } else {
        if (!is_ipv4 || f->ip4->daddr != ((const __be32 *)ip)[3] || f->ip4->protocol != IPPROTO_UDP)
            return ANOTHERS;
        if (!is_plain(f->ip4))
            return OURS_ODD;
    }
    return f->udp->dest == port ? OURS : ANOTHERS;
}

/* Whether the payload lies in the frame's first buffer. */
INLINE int is_at_hand(const struct frame *f)
{
    return f->len + sizeof(*f->udp) <= (__u64)(f->end - (void *)f->udp);
}

/* Whether the lengths of UDP, of IP behind its header and of the frame agree; sets that of the payload. */
INLINE int is_whole(struct xdp_md *context, struct frame *f)
{
    __u32 len = bpf_ntohs(f->udp->len), before = (void *)f->udp - (void *)f->eth;
    __u32 room = f->is_ipv6 ? bpf_ntohs(f->ip6->payload_len) : bpf_ntohs(f->ip4->tot_len) - sizeof(*f->ip4);

    f->len = len - sizeof(*f->udp);
    return len >= sizeof(*f->udp) && len == room &&
           (is_at_hand(f) || before + len <= bpf_xdp_get_buff_len(context));
}

/* Whether an answer can go to the source: neither this host, loopback, a group, nor nobody. The kernel asks so of
 * what goes up. */
INLINE int is_answerable(const struct frame *f)
{
    if (f->is_ipv6) {
        const __be32 *from = f->ip6->saddr.in6_u.u6_addr32;

        return f->udp->source && !is_same(from, &f->ip6->daddr) && (from[0] | from[1]) && *(const __u8 *)from != 0xff;
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
