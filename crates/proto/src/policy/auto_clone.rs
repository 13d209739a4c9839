//! Late binding and copies with no number to set: what servers report says how many threads they have.

use super::{
    Argument, Entry, Form, Loads, OUT_OF_SERVICE, Placement, Policy, PolicySpec, QueueModel, Scope,
    WorkerId,
};

/// Idle threads take copies while most servers have one, and the rest is [`super::Jbsq`].
///
/// | a request comes | then |
/// |---|---|
/// | and a server has an idle thread | it goes to the server with the fewest outstanding of those |
/// | and none has | it goes where the fewest wait, up to one and an eighth of the threads; else it is held |
/// | and more than half of the servers have an idle thread | a copy goes to the second in that order |
///
/// A server has as many threads as run there while others wait, which its reports say. Before the
/// first such report it is taken for idle unless somebody waits there, as NetClone does, and nothing
/// bounds it: nobody waits there either. A load is the higher of what is outstanding and what was
/// reported, which includes what other routers have placed.
///
/// Copies need no budget: they take threads that nobody needs now, and the half that stays idle is
/// for what comes before one of them ends. What a server may have beyond its threads hides the way
/// of the next request, so that late binding costs no throughput.
#[derive(Clone, Debug, Default)]
pub struct AutoClone {
    /// By server: threads, and 0 while they are not known.
    threads: Vec<u32>,
    /// Where the next scan begins: after the server that was placed on last.
    next: u32,
    /// Placements since the threads were last released, for a server may come back with others.
    placed: u32,
}

/// Its entry in the registry.
pub(super) const ENTRIES: &[Entry] = &[Entry {
    name: "auto-clone",
    forms: &[Form {
        parameter: "",
        about: "the fewest outstanding, the rest in one queue, and copies while most servers have \
                idle threads",
    }],
    scope: Scope::Routers,
    build: |_| Box::new(AutoClone::default()),
    model: |_| QueueModel::Other,
}];

impl AutoClone {
    /// `auto-clone`.
    pub const SPEC: PolicySpec = PolicySpec::new(&ENTRIES[0], Argument::None);

    /// Releases the threads now and then.
    fn begin(&mut self, servers: usize) {
        self.threads.resize(servers, 0);
        self.placed += 1;
        if self.placed == PLACEMENTS_BELIEVED {
            self.placed = 0;
            self.threads.fill(0);
        }
    }
}

/// The rank of a server in service among those that may take a request, the lowest first;
/// [`NOBODY`] where it may not.
#[inline]
fn rank(load: u32, threads: u32, is_waited: bool) -> u32 {
    if threads == 0 && !is_waited {
        return load.min(BUSY - 1);
    }
    let ahead = threads / 8 + 1;
    match load.checked_sub(threads) {
        None => load,
        Some(waiting) if waiting < ahead || threads == 0 => {
            BUSY.saturating_add(waiting).min(NOBODY - 1)
        }
        Some(_) => NOBODY,
    }
}

impl Policy for AutoClone {
    fn place(&mut self, loads: Loads<'_>, _random: u64) -> Placement {
        self.begin(loads.outstanding.len());
        let reports = loads.reported.iter().zip(loads.waiting);
        let columns = loads.outstanding.iter().zip(reports).zip(&mut self.threads);
        let (mut first, mut second) = (Candidate::NOBODY, Candidate::NOBODY);
        let (mut in_service, mut idle) = (0, 0);
        for (index, ((&outstanding, (&reported, &waiting)), threads)) in (0u32..).zip(columns) {
            // The requests that run there while others wait.
            if waiting > 0 && reported > waiting {
                *threads = reported - waiting;
            }
            if outstanding == OUT_OF_SERVICE {
                continue;
            }
            in_service += 1u32;
            let rank = rank(outstanding.max(reported), *threads, waiting > 0);
            idle += u32::from(rank < BUSY);
            let candidate = Candidate::new(rank, index.wrapping_sub(self.next));
            second = second.min(first.max(candidate));
            first = first.min(candidate);
        }
        if first.rank() == NOBODY {
            return Placement::Hold;
        }
        let original = WorkerId(first.place().wrapping_add(self.next));
        let copy = WorkerId(second.place().wrapping_add(self.next));
        self.next = original.0 + 1;
        if second.rank() < BUSY && 2 * idle > in_service {
            return Placement::Two(original, copy);
        }
        Placement::One(original)
    }
}

/// A server by its rank, then by how far it is from where the scan begins: those before that count
/// as the furthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate(u64);

impl Candidate {
    const NOBODY: Self = Self(u64::MAX);

    #[inline]
    fn new(rank: u32, place: u32) -> Self {
        Self(u64::from(rank) << 32 | u64::from(place))
    }

    fn rank(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn place(self) -> u32 {
        self.0 as u32
    }
}

/// The rank of a server with no idle thread, where nobody waits.
const BUSY: u32 = 1 << 31;

/// Above any rank.
const NOBODY: u32 = u32::MAX;

/// So long are threads believed in. What few requests are placed before they are known again is
/// beyond any percentile that is looked at.
const PLACEMENTS_BELIEVED: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, one, two};
    use super::*;

    /// Places after reports of three waiting requests, which say so many threads.
    fn check(threads: &[u32], outstanding: &[u32], expected: Placement) {
        let mut policy = AutoClone::default();
        let reported: Vec<u32> = threads.iter().map(|threads| threads + 3).collect();
        let (busy, waiting) = (vec![OUT; threads.len()], vec![3; threads.len()]);
        let loads = Loads { outstanding: &busy, reported: &reported, waiting: &waiting };
        assert_eq!(policy.place(loads, 0), Placement::Hold);
        let none = vec![0; threads.len()];
        let loads = Loads { outstanding, reported: &none, waiting: &none };
        assert_eq!(policy.place(loads, 0), expected, "{threads:?} {outstanding:?}");
    }

    #[test]
    fn copies_go_while_most_servers_have_an_idle_thread() {
        check(&[4, 4, 4], &[1, 0, 2], two(1, 0));
        check(&[4, 4, 4], &[4, 3, 2], two(2, 1));
        check(&[4, 4, 4], &[4, 4, 2], one(2));
        check(&[4, 4, 4, 4], &[4, 4, 2, 2], one(2));
    }

    #[test]
    fn who_finds_no_idle_thread_waits_where_the_fewest_do() {
        check(&[1, 1], &[1, 1], one(0));
        check(&[8, 4], &[9, 4], one(1));
        check(&[16, 16], &[18, 17], one(1));
    }

    #[test]
    fn who_finds_no_room_is_held() {
        check(&[1, 1], &[2, 2], Placement::Hold);
        check(&[16, 4], &[19, 5], Placement::Hold);
        check(&[1, 1], &[2, OUT], Placement::Hold);
    }

    #[test]
    fn a_server_that_has_reported_nobody_waiting_is_idle() {
        let mut policy = AutoClone::default();
        let place = |policy: &mut AutoClone, reported: &[u32], waiting: &[u32]| {
            policy.place(Loads { outstanding: &[90, 90, OUT], reported, waiting }, 0)
        };
        assert_eq!(place(&mut policy, &[0, 0, 0], &[0, 0, 0]), two(0, 1));
        assert_eq!(place(&mut policy, &[91, 0, 0], &[0, 0, 0]), two(1, 0));
        // The second has 80 threads, all busy and 10 more than that to do.
        assert_eq!(place(&mut policy, &[0, 82, 0], &[0, 2, 0]), one(0));
    }

    #[test]
    fn the_threads_of_a_server_are_learned_again() {
        let mut policy = AutoClone::default();
        let waits = Loads { outstanding: &[2, 2], reported: &[4, 4], waiting: &[3, 3] };
        let idle = Loads { outstanding: &[2, 2], reported: &[1, 1], waiting: &[0, 0] };
        assert_eq!(policy.place(waits, 0), Placement::Hold);
        let held =
            (1..PLACEMENTS_BELIEVED).take_while(|_| policy.place(idle, 0) == Placement::Hold);
        assert_eq!(held.count(), PLACEMENTS_BELIEVED as usize - 2);
        assert!(matches!(policy.place(idle, 0), Placement::Two(..)));
    }
}
