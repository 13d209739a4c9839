//! The counters of endpoints, routers and ports by their names, for reports.

use tailcut_net::datapath::{AnyDatapath, Datapath};
use tailcut_net::ip::Strays;
use tailcut_net::raw::RawMetrics;
use tailcut_net::stream::StreamMetrics;
use tailcut_net::udp::UdpMetrics;
use tailcut_net::xdp::{RingMetrics, XdpMetrics};
use tailcut_proto::endpoint::Metrics;
use tailcut_proto::netclone::SwitchMetrics;
use tailcut_proto::router::{MalformedCounts, Refused, RouterMetrics};
use tailcut_proto::sealed::SealMetrics;
use tailcut_proto::{homa, r2p2};
use tailcut_wire::r2p2::DropReason;

/// Names and counts, in a fixed order.
pub(crate) type Counters = Vec<(String, u64)>;

/// Lists every field of a struct of counters under its name; a field that is missing here does not
/// compile.
macro_rules! listed {
    ($counters:expr, $kind:ident { $($name:ident),* $(,)? } $(, $nested:ident)*) => {{
        let $kind { $($name,)* $($nested: _,)* } = $counters;
        vec![$((stringify!($name).to_owned(), $name)),*]
    }};
}

/// An endpoint's counters.
pub(crate) fn of_endpoint(metrics: &Metrics) -> Counters {
    match metrics {
        Metrics::R2p2(metrics) => of_r2p2(metrics),
        Metrics::Homa(metrics) => of_homa(metrics),
    }
}

fn of_homa(metrics: &homa::Metrics) -> Counters {
    use homa::Metrics;
    #[rustfmt::skip]
    let own = listed!(*metrics, Metrics {
        data_bytes_out, unreachable, incast, resent_bytes, grants, fifo_grants, resends, gaps, busy,
        unknowns, need_acks, acks, acks_piggybacked, validations, cutoffs, cutoffs_changed,
        unacknowledged,
    }, malformed, common, seal);
    of_sealed((&metrics.common, &metrics.seal), own, metrics.malformed.iter().sum())
}

fn of_r2p2(metrics: &r2p2::Metrics) -> Counters {
    use r2p2::Metrics;
    #[rustfmt::skip]
    let own = listed!(*metrics, Metrics {
        resent, timeouts, moved, paced, withheld, retried, told_held, validations, feedback,
        clones_sent, clones_won, clones_filtered, clones_over_budget, clones_withheld,
        clones_cancelled, clones_discarded,
    }, malformed, common, seal);
    of_sealed((&metrics.common, &metrics.seal), own, metrics.malformed.iter().sum())
}

/// Those of an endpoint, whose seal comes last.
fn of_sealed(
    (common, seal): (&r2p2::Counters, &SealMetrics),
    own: Counters,
    malformed: u64,
) -> Counters {
    let mut counters = of_either(common, own, malformed);
    counters.extend(of_seal(seal));
    counters
}

/// The counters of a seal.
fn of_seal(metrics: &SealMetrics) -> Counters {
    #[rustfmt::skip]
    let own = listed!(*metrics, SealMetrics {
        unsealed, unknown_keys, forged, replayed, misdirected, outdated, unnamed, stale_sessions,
        ahead, unsealable, denied, no_key_sent, no_key_received,
    });
    prefixed("seal", own)
}

/// The counters that every protocol has, then its own.
fn of_either(common: &r2p2::Counters, own: Counters, malformed: u64) -> Counters {
    use r2p2::Counters;
    #[rustfmt::skip]
    let mut counters = listed!(*common, Counters {
        datagrams_in, datagrams_out, unexpected, unknown, protocol_violation, duplicates,
        calls, replied, refused, deadlines, failed, cancelled, requests, repeated,
        duplicate_after_release, partials_expired, unanswered, sessions_refused,
        sessions_refused_by_prefix, amplification_limited, control_dropped_queue_full,
    }, drops);
    counters.extend(own);
    counters.push(("malformed".to_owned(), malformed));
    counters.extend(named_drops(&common.drops));
    counters
}

fn named_drops(drops: &[u64]) -> impl Iterator<Item = (String, u64)> + '_ {
    let reasons = (0_u8..).map(|reason| DropReason::from_payload(&[reason]));
    reasons.zip(drops).map(|(reason, &count)| (snake("drop", &format!("{reason:?}")), count))
}

/// Counters of a port, its own and the kernel's, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortSnapshot {
    metrics: UdpMetrics,
    /// Strays of a port directly over IP.
    strays: Option<Strays>,
    /// Counters of a port over AF_XDP, and of its rings.
    xdp: Option<(XdpMetrics, RingMetrics)>,
    kernel_drops: u64,
}

impl PortSnapshot {
    /// Reads a port's counters.
    pub(crate) fn of(port: &AnyDatapath) -> Self {
        let (strays, xdp) = match port {
            AnyDatapath::Udp(_) => (None, None),
            AnyDatapath::Ip(port) => (Some(port.strays()), None),
            AnyDatapath::Xdp(port) => {
                (None, Some((port.xdp_metrics(), port.ring_metrics().unwrap_or_default())))
            }
        };
        let kernel_drops = port.kernel_drops().map_or(0, u64::from);
        Self { metrics: port.metrics(), strays, xdp, kernel_drops }
    }

    /// The counters by their names.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = datagrams(&self.metrics);
        let prefix = if self.strays.is_some() { "ip" } else { "udp" };
        if let Some(strays) = self.strays {
            counters.extend(listed!(strays, Strays { foreign, malformed }));
        }
        let mut counters = prefixed(prefix, counters);
        if let Some((metrics, rings)) = self.xdp {
            #[rustfmt::skip]
            let mut own = listed!(metrics, XdpMetrics {
                direct_in, partial_checksums, direct_out, kernel_elsewhere, kernel_unresolved,
                kernel_unasked, lookups, peers_evicted, ways_flushed, malformed, bad_ip_checksum,
                bad_udp_checksum, martian, foreign_vlan, dropped_ring_full, without_room,
                interface_errors,
            });
            own.extend(listed!(
                rings,
                RingMetrics { ring_dropped, ring_receive_full, ring_fill_empty, ring_invalid }
            ));
            counters.extend(prefixed("xdp", own));
        }
        counters.push(("kernel_drops".to_owned(), self.kernel_drops));
        counters
    }
}

/// A router's counters.
pub(crate) fn of_router(metrics: &RouterMetrics) -> Counters {
    #[rustfmt::skip]
    let mut counters = listed!(*metrics, RouterMetrics {
        received, forwarded, held, told_held, validations, not_first, unexpected, fixed,
        fixed_past_bound, duplicates_forwarded, duplicates_held, duplicates_moved, untracked,
        feedback_taken, feedback_stale, feedback_unmatched, feedback_mismatched, feedback_stranger,
        server_restarts, leases_expired, trials, server_looks, probes, stall_probes,
        probes_answered, probes_stranger, reports, servers_silenced, servers_returned,
        servers_ejected, servers_readmitted, claims, claims_placed, claims_expired, claims_dropped,
        claimed_unmatched, cancelled_held, cancelled_forwarded, cancels_unknown, cloned,
        clones_unplaced, clones_won, clones_cancelled, replies_forwarded, replies_filtered,
        replies_stranger, filter_evicted, outbox_full, oversize,
    }, refused, malformed, seal);
    counters.extend(of_seal(&metrics.seal));
    let refused = listed!(
        metrics.refused,
        Refused {
            overload,
            too_large,
            expired,
            no_server,
            uncertain,
            v1_annotate,
            v1_cookies,
            stopping
        }
    );
    #[rustfmt::skip]
    let malformed = listed!(metrics.malformed, MalformedCounts {
        truncated, magic, header_size, message_type, policy, flags, order, version, length,
        no_route, client_address,
    });
    counters.extend(refused.into_iter().map(|(name, count)| (format!("refused_{name}"), count)));
    counters
        .extend(malformed.into_iter().map(|(name, count)| (format!("malformed_{name}"), count)));
    counters
}

/// The counters of a NetClone switch.
pub(crate) fn of_switch(metrics: &SwitchMetrics) -> Counters {
    #[rustfmt::skip]
    let counters = listed!(*metrics, SwitchMetrics {
        received, placed, cloned, unknown_group, replies_forwarded, replies_filtered, clones_won,
        filter_evicted, replies_stranger, replies_unknown, servers_silenced, servers_returned,
        malformed_length, malformed_op, malformed_mark, too_large, outbox_full, oversize,
    });
    counters
}

fn datagrams(metrics: &UdpMetrics) -> Counters {
    #[rustfmt::skip]
    let counters = listed!(*metrics, UdpMetrics {
        datagrams_in, bytes_in, gso_batches_in, truncated, nameless, datagrams_out, bytes_out,
        gso_batches_out, without_room, would_block, dropped_full, dropped_no_buffers,
        dropped_too_large, dropped_unreachable, dropped_other, gso_batches_refused, icmp_errors,
        receive_errors,
    });
    counters
}

/// The counters of connections.
pub(crate) fn of_streams(metrics: &StreamMetrics) -> Counters {
    #[rustfmt::skip]
    let counters = listed!(*metrics, StreamMetrics {
        connects, connected, accepted, accepts_refused, accept_errors, failed, lingered_out,
        output_full, bytes_in, bytes_out, unstamped, sleeps,
    });
    prefixed("stream", counters)
}

/// A raw port's counters.
pub(crate) fn of_raw(metrics: &RawMetrics) -> Counters {
    #[rustfmt::skip]
    let counters = listed!(*metrics, RawMetrics {
        datagrams_out, bytes_out, dropped_full, dropped_too_large, dropped_address, dropped_other,
    });
    prefixed("raw", counters)
}

/// Adds `other`, which names the same counters.
pub(crate) fn add(counters: &mut Counters, other: &Counters) {
    if counters.is_empty() {
        counters.clone_from(other);
        return;
    }
    for ((_, count), (_, more)) in counters.iter_mut().zip(other) {
        *count += more;
    }
}

/// The counters that are not 0, a line each.
pub(crate) fn lines(counters: &Counters) -> String {
    let counted = counters.iter().filter(|(_, count)| *count > 0);
    let rows: Vec<_> =
        counted.map(|(name, count)| vec![format!("  {name}"), count.to_string()]).collect();
    crate::output::table(&rows, 1)
}

fn prefixed(prefix: &str, counters: Counters) -> Counters {
    counters.into_iter().map(|(name, count)| (format!("{prefix}_{name}"), count)).collect()
}

/// `TooLarge` as `drop_too_large`.
fn snake(prefix: &str, name: &str) -> String {
    name.chars().fold(prefix.to_owned(), |mut text, letter| {
        if letter.is_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_reason() {
        let (mut r2p2, mut homa) = (r2p2::Metrics::default(), homa::Metrics::default());
        (r2p2.drops[DropReason::TooLarge as usize], homa.drops[DropReason::TooLarge as usize]) =
            (3, 4);
        assert!(lines(&of_endpoint(&Metrics::R2p2(r2p2))).ends_with("drop_too_large  3\n"));
        assert!(lines(&of_endpoint(&Metrics::Homa(homa))).ends_with("drop_too_large  4\n"));
    }
}
