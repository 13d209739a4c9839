//! Who gets a request, and who a copy of it: the deciders of cloning and of scheduling on reported
//! loads.
//!
//! | policy | candidates | two get it | one gets it | holds |
//! |---|---|---|---|---|
//! | [`CClone`] | a pair of servers | always | never | without a server |
//! | [`NetClone`] | a pair of servers | when both loads are 0 | else: the first of the pair | without a server |
//! | [`NetClone::with_racksched`] | a pair of servers | when both loads are 0 | else: the smaller load, a tie goes to the first | without a server |
//! | [`RackSched`] | a pair of servers | never | the smaller load, a tie goes to the first | without a server |
//! | [`Laedge`] | a pair of idle servers | when two or more are idle | when exactly one is idle | when none is idle |
//!
//! A pair is ordered, its two servers are distinct, and each of the n(n-1) pairs of servers in
//! service is equally likely: it is what NetClone calls a group, which its client draws. Where only
//! one server is in service it gets every request.
//!
//! What `loads` means differs. [`Laedge`] places by outstanding counts, as the other policies of
//! this crate do. [`NetClone`] and [`RackSched`] run on a switch that counts nothing: their `loads`
//! are the latest *reports* of the servers, which are late by a response. NetClone's servers report
//! the requests that wait, those that run left out, so that 0 says "nobody waits" and not "a worker
//! is free". [`crate::scheduler::Scheduler`] gives outstanding counts and hence suits [`Laedge`]
//! and [`CClone`].
//!
//! Invariant: a clone goes to another server than the original, and no policy here keeps state from
//! one request to the next.

use std::num::NonZeroU32;

use super::{Draws, OUT_OF_SERVICE, Placement, Policy, WorkerId, count_below, nth_below};

/// The client sends two copies, whatever the load is (Vulimiri et al., CoNEXT'13; "C-Clone" of the
/// NetClone paper).
#[derive(Clone, Copy, Debug, Default)]
pub struct CClone;

impl Policy for CClone {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        draw_pair(loads, OUT_OF_SERVICE, random)
    }
}

/// The switch clones where nobody waits at either server of the pair (NetClone, SIGCOMM'23).
///
/// `loads` are the reported lengths of the waiting queues.
#[derive(Clone, Copy, Debug)]
pub struct NetClone {
    /// Which of the pair takes a request that is not cloned.
    fallback: Fallback,
}

/// Which of a pair takes a request that is not cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fallback {
    /// The first, which makes it random placement.
    First,
    /// The one that reported less, the first on a tie.
    Shorter,
}

impl NetClone {
    /// Plain NetClone: what is not cloned is placed at random.
    pub fn new() -> Self {
        Self { fallback: Fallback::First }
    }

    /// NetClone with RackSched: what is not cloned goes to the shorter of the pair.
    pub fn with_racksched() -> Self {
        Self { fallback: Fallback::Shorter }
    }
}

impl Default for NetClone {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for NetClone {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        match draw_pair(loads, OUT_OF_SERVICE, random) {
            Placement::Two(first, second)
                if loads[first.index()] > 0 || loads[second.index()] > 0 =>
            {
                Placement::One(match self.fallback {
                    Fallback::First => first,
                    Fallback::Shorter => shorter(loads, first, second),
                })
            }
            placement => placement,
        }
    }
}

/// The less loaded of two samples, by reported loads; the first on a tie (RackSched, OSDI'20, as
/// NetClone integrates it).
///
/// The two samples are distinct, because they are NetClone's pair. RackSched's own switch draws
/// each with a generator of its own: with n servers both draws name the same one once in n times,
/// and the request goes there without a comparison. Its servers report what is outstanding, running
/// requests included and the answered one left out.
///
/// It differs from [`super::Jsq`] of 2 in the tie, which goes to the first of the pair and needs no
/// draw.
#[derive(Clone, Copy, Debug, Default)]
pub struct RackSched;

impl Policy for RackSched {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        match draw_pair(loads, OUT_OF_SERVICE, random) {
            Placement::Two(first, second) => Placement::One(shorter(loads, first, second)),
            placement => placement,
        }
    }
}

/// A coordinator sends two copies while two servers are idle, one while one is, and queues the rest
/// (LAEDGE, ICDE'21).
///
/// A server is idle while it has fewer outstanding requests than slots. One slot a server is the
/// busy bit of the NetClone artifact; one slot a worker is what a server can run. A request that
/// was held meets exactly one idle server, the one that has just answered, and so goes there
/// uncloned.
#[derive(Clone, Copy, Debug)]
pub struct Laedge {
    /// Outstanding requests at which a server is busy; 1 to `OUT_OF_SERVICE - 1`.
    slots: u32,
}

impl Laedge {
    /// Takes a server for idle while it has fewer than `slots` outstanding requests.
    pub fn new(slots: NonZeroU32) -> Self {
        Self { slots: slots.get().min(OUT_OF_SERVICE - 1) }
    }
}

impl Policy for Laedge {
    fn place(&mut self, loads: &[u32], random: u64) -> Placement {
        draw_pair(loads, self.slots, random)
    }

    fn bound(&self) -> Option<u32> {
        Some(self.slots)
    }

    fn set_bound(&mut self, bound: u32) {
        self.slots = bound.clamp(1, OUT_OF_SERVICE - 1);
    }
}

/// A uniform ordered pair of distinct workers whose load is below `limit`; the only one, or nobody,
/// where there are fewer.
fn draw_pair(loads: &[u32], limit: u32, random: u64) -> Placement {
    let count = count_below(loads, limit);
    match count {
        0 => Placement::Hold,
        1 => Placement::One(nth_below(loads, limit, count, 0)),
        _ => {
            let mut draws = Draws::new(random);
            let (first, second) = draws.distinct_below(count);
            Placement::Two(
                nth_below(loads, limit, count, first),
                nth_below(loads, limit, count, second),
            )
        }
    }
}

/// The less loaded of two, the first on a tie.
fn shorter(loads: &[u32], first: WorkerId, second: WorkerId) -> WorkerId {
    if loads[second.index()] < loads[first.index()] { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: u32 = OUT_OF_SERVICE;

    fn one(worker: u32) -> Placement {
        Placement::One(WorkerId(worker))
    }

    fn two(first: u32, second: u32) -> Placement {
        Placement::Two(WorkerId(first), WorkerId(second))
    }

    fn laedge(slots: u32) -> Laedge {
        Laedge::new(NonZeroU32::new(slots).unwrap())
    }

    /// Each placement comes up in its share of the draws, and no other does. The standard deviation
    /// of a count of 60,000 is at most 123, so 750 is six of them.
    fn check(mut policy: impl Policy, loads: &[u32], expected: &[(Placement, f64)]) {
        const COUNT: u32 = 60_000;
        let mut draws = Draws::new(1);
        let placements: Vec<Placement> =
            (0..COUNT).map(|_| policy.place(loads, draws.word())).collect();
        let mut left = COUNT;
        for &(placement, share) in expected {
            let hits = placements.iter().filter(|&&found| found == placement).count() as u32;
            assert!(
                hits.abs_diff((share * f64::from(COUNT)) as u32) < 750,
                "{placement:?} {hits} times, loads {loads:?}"
            );
            left -= hits;
        }
        assert_eq!(left, 0, "other placements than {expected:?}, loads {loads:?}");
    }

    /// The six ordered pairs of three servers, equally likely.
    fn all_pairs_of_three() -> [(Placement, f64); 6] {
        [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
            .map(|(first, second)| (two(first, second), 1.0 / 6.0))
    }

    #[test]
    fn cclone_clones_whatever_the_load_is() {
        check(CClone, &[7, 0, 3], &all_pairs_of_three());
    }

    #[test]
    fn netclone_clones_where_both_report_zero() {
        check(NetClone::new(), &[0, 0, 0], &all_pairs_of_three());
        check(NetClone::with_racksched(), &[0, 0, 0], &all_pairs_of_three());
    }

    #[test]
    fn netclone_without_a_clone_is_random() {
        check(NetClone::new(), &[0, 9], &[(one(0), 0.5), (one(1), 0.5)]);
        check(NetClone::new(), &[1, 1], &[(one(0), 0.5), (one(1), 0.5)]);
    }

    #[test]
    fn netclone_decides_by_the_pair_alone() {
        let sixth = 1.0 / 6.0;
        check(
            NetClone::new(),
            &[0, 0, 5],
            &[
                (two(0, 1), sixth),
                (two(1, 0), sixth),
                (one(0), sixth),
                (one(1), sixth),
                (one(2), 2.0 * sixth),
            ],
        );
    }

    #[test]
    fn netclone_with_racksched_takes_the_shorter_where_it_cannot_clone() {
        check(NetClone::with_racksched(), &[0, 9], &[(one(0), 1.0)]);
        check(NetClone::with_racksched(), &[2, 1], &[(one(1), 1.0)]);
        check(NetClone::with_racksched(), &[4, 4], &[(one(0), 0.5), (one(1), 0.5)]);
    }

    #[test]
    fn racksched_takes_the_shorter_and_never_clones() {
        // The i-th shortest of three wins when it is in the pair and no shorter one is.
        check(RackSched, &[2, 0, 1], &[(one(1), 2.0 / 3.0), (one(2), 1.0 / 3.0)]);
        check(RackSched, &[0, 0], &[(one(0), 0.5), (one(1), 0.5)]);
    }

    #[test]
    fn a_tie_goes_to_the_first_of_the_pair() {
        let mut draws = Draws::new(2);
        for _ in 0..1000 {
            let random = draws.word();
            let Placement::Two(first, _) = CClone.place(&[3, 3, 3], random) else {
                panic!("three are in service")
            };
            assert_eq!(RackSched.place(&[3, 3, 3], random), Placement::One(first));
            assert_eq!(NetClone::with_racksched().place(&[3, 3, 3], random), Placement::One(first));
        }
    }

    #[test]
    fn laedge_clones_on_idle_servers_alone() {
        check(laedge(1), &[0, 0, 0], &all_pairs_of_three());
        check(laedge(1), &[0, 1, 0], &[(two(0, 2), 0.5), (two(2, 0), 0.5)]);
        check(laedge(15), &[14, 15, 3], &[(two(0, 2), 0.5), (two(2, 0), 0.5)]);
    }

    #[test]
    fn laedge_sends_to_the_only_idle_server() {
        check(laedge(1), &[1, 1, 0], &[(one(2), 1.0)]);
        check(laedge(2), &[2, 1, 2], &[(one(1), 1.0)]);
    }

    #[test]
    fn laedge_holds_where_nobody_is_idle() {
        check(laedge(1), &[1, 1, 1], &[(Placement::Hold, 1.0)]);
        check(laedge(3), &[3, OUT, 4], &[(Placement::Hold, 1.0)]);
    }

    #[test]
    fn laedge_takes_a_new_number_of_slots() {
        let mut policy = laedge(1);
        policy.set_bound(2);
        assert_eq!(policy.bound(), Some(2));
        check(policy, &[1, 2], &[(one(0), 1.0)]);
    }

    #[test]
    fn servers_out_of_service_get_nothing() {
        let pair = [(two(0, 2), 0.5), (two(2, 0), 0.5)];
        check(CClone, &[4, OUT, 4], &pair);
        check(NetClone::new(), &[0, OUT, 0], &pair);
        check(laedge(1), &[0, OUT, 0], &pair);
        check(RackSched, &[4, OUT, 3], &[(one(2), 1.0)]);
    }

    #[test]
    fn the_only_server_in_service_gets_every_request_once() {
        for loads in [&[OUT, 0, OUT][..], &[OUT, 0][..]] {
            check(CClone, loads, &[(one(1), 1.0)]);
            check(NetClone::new(), loads, &[(one(1), 1.0)]);
            check(NetClone::with_racksched(), loads, &[(one(1), 1.0)]);
            check(RackSched, loads, &[(one(1), 1.0)]);
            check(laedge(1), loads, &[(one(1), 1.0)]);
        }
    }

    #[test]
    fn nobody_in_service_holds() {
        for loads in [&[][..], &[OUT, OUT][..]] {
            check(CClone, loads, &[(Placement::Hold, 1.0)]);
            check(NetClone::new(), loads, &[(Placement::Hold, 1.0)]);
            check(RackSched, loads, &[(Placement::Hold, 1.0)]);
            check(laedge(1), loads, &[(Placement::Hold, 1.0)]);
        }
    }
}
