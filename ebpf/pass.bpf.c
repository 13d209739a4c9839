/* Passes every packet on to the kernel: what the others are measured against, and what the far end of a veth
 * pair needs to take packets that XDP sends. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int pass(struct xdp_md *context)
{
    (void)context;
    return XDP_PASS;
}

/* No packets of several buffers, with which no driver takes long ones. */
SEC("xdp")
int pass_whole(struct xdp_md *context)
{
    (void)context;
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
