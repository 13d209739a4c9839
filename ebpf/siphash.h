/* SipHash-2-4 of whole words, as crates/proto/src/sealed/packet.rs has hop tags. */
#ifndef TAILCUT_SIPHASH_H
#define TAILCUT_SIPHASH_H

#include "packet.h"

#define ROTATE(x, by) ((x) << (by) | (x) >> (64 - (by)))

struct sip {
    __u64 a, b, c, d;
};

INLINE void sip_round(struct sip *s)
{
    s->a += s->b;
    s->b = ROTATE(s->b, 13) ^ s->a;
    s->a = ROTATE(s->a, 32);
    s->c += s->d;
    s->d = ROTATE(s->d, 16) ^ s->c;
    s->a += s->d;
    s->d = ROTATE(s->d, 21) ^ s->a;
    s->c += s->b;
    s->b = ROTATE(s->b, 17) ^ s->c;
    s->c = ROTATE(s->c, 32);
}

INLINE void sip_word(struct sip *s, __u64 word)
{
    s->d ^= word;
    sip_round(s);
    sip_round(s);
    s->a ^= word;
}

/* Of `count` words, a constant, as they are in memory; the tag as it is in the packet. */
INLINE __u64 siphash(const __u64 key[2], const __u64 *words, __u32 count)
{
    struct sip s = {
        key[0] ^ 0x736f6d6570736575ull,
        key[1] ^ 0x646f72616e646f6dull,
        key[0] ^ 0x6c7967656e657261ull,
        key[1] ^ 0x7465646279746573ull,
    };

    _Pragma("clang loop unroll(full)")
    for (__u32 i = 0; i < count; i++)
        sip_word(&s, words[i]);
    sip_word(&s, (__u64)count << 59);
    s.c ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return bpf_cpu_to_be64(s.a ^ s.b ^ s.c ^ s.d);
}

#endif
