//! Late binding and copies with no number to set: what servers report says how many threads they
//! have.

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
/// first such report it is taken for idle unless somebody waits there, as NetClone does, and
/// nothing bounds it: nobody waits there either. A load is the higher of what is outstanding and
/// what was reported, which includes what other routers have placed.
///
/// It looks at servers in a circle, and no further than at one that is idle and has as few
/// outstanding as the last that took a request: nearly the fewest, for a look at a few servers.
/// What it saw of the others when it last looked says whether most have an idle thread.
///
/// Copies need no budget: they take threads that nobody needs now, and the half that stays idle is
/// for what comes before one of them ends. What a server may have beyond its threads hides the way
/// of the next request, so that late binding costs no throughput.
#[derive(Clone, Debug, Default)]
pub struct AutoClone {
    /// State that is known of each server.
    servers: Vec<Known>,
    /// Servers with an idle thread less those without, as of the last look at each.
    balance: i32,
    /// Start of the next look: after the server that was placed on last.
    next: usize,
    /// The rank of the server that took the last request, or any that is idle; below [`BUSY`].
    level: u32,
    /// The rank of the server that took the last copy.
    copy_level: u32,
    /// Placements since the threads were last released, for a server may come back with others.
    placed: u32,
}

/// State that is known of a server.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its threads, or [`UNKNOWN`].
    threads: u32,
    /// 1 if it had an idle thread, -1 if it had none, and 0 if it was not in service.
    standing: i32,
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
    #[inline]
    fn begin(&mut self, servers: usize) {
        if self.servers.len() != servers {
            self.balance = 0;
            self.servers.clear();
            self.servers.resize(servers, Known { threads: UNKNOWN, standing: 0 });
        }
        self.placed += 1;
        if self.placed == PLACEMENTS_BELIEVED {
            self.placed = 0;
            self.servers.iter_mut().for_each(|known| known.threads = UNKNOWN);
        }
    }

    /// The rank of a server that stands as when it was last looked at: in service, and idle.
    #[inline]
    fn standing_rank(&self, loads: Loads<'_>, index: usize) -> Option<u32> {
        let known = self.servers[index];
        let load = loads.outstanding[index].max(loads.reported[index]);
        (loads.waiting[index] == 0 && load < known.threads && known.standing == 1).then_some(load)
    }

    /// Looks at a server: its rank.
    fn look(&mut self, loads: Loads<'_>, index: usize) -> u32 {
        let outstanding = loads.outstanding[index];
        let (reported, waiting) = (loads.reported[index], loads.waiting[index]);
        let known = &mut self.servers[index];
        // The requests that run there while others wait.
        if waiting > 0 && reported > waiting {
            known.threads = reported - waiting;
        }
        let (rank, standing) = if outstanding == OUT_OF_SERVICE {
            (NOBODY, 0)
        } else {
            let rank = rank(outstanding.max(reported), known.threads, waiting > 0);
            (rank, if rank < BUSY { 1 } else { -1 })
        };
        self.balance += standing - known.standing;
        known.standing = standing;
        rank
    }

    /// Looks at up to `count` servers from `next` on, for one of a rank up to `level`; the lowest
    /// rank that it has seen, and whose that is.
    #[inline]
    fn find(&mut self, loads: Loads<'_>, count: usize, level: u32) -> (u32, usize) {
        let index = if self.next < self.servers.len() { self.next } else { 0 };
        if count > 0
            && let Some(rank) = self.standing_rank(loads, index).filter(|&rank| rank <= level)
        {
            return (rank, index);
        }
        self.find_from(loads, (index, count), level)
    }

    /// Looks as [`AutoClone::find`] does where the next server is not it.
    #[inline(never)]
    fn find_from(
        &mut self,
        loads: Loads<'_>,
        (mut index, count): (usize, usize),
        level: u32,
    ) -> (u32, usize) {
        let mut best = (NOBODY, 0);
        for _ in 0..count {
            let rank = match self.standing_rank(loads, index) {
                Some(rank) => rank,
                None => self.look(loads, index),
            };
            if rank <= level {
                return (rank, index);
            }
            if rank < best.0 {
                best = (rank, index);
            }
            index = if index + 1 < self.servers.len() { index + 1 } else { 0 };
        }
        best
    }

    /// A server of this rank, which had an idle thread, takes one request more.
    #[inline]
    fn occupy(&mut self, rank: u32, index: usize) {
        let known = &mut self.servers[index];
        if rank + 1 == known.threads {
            self.balance -= 1 + known.standing;
            known.standing = -1;
        }
    }
}

/// The rank of a server in service among those that may take a request, the lowest first;
/// [`NOBODY`] where it may not.
#[inline]
fn rank(load: u32, threads: u32, is_waited: bool) -> u32 {
    if threads == UNKNOWN {
        return if is_waited {
            BUSY.saturating_add(load).min(NOBODY - 1)
        } else {
            load.min(BUSY - 1)
        };
    }
    let ahead = threads / 8 + 1;
    match load.checked_sub(threads) {
        None => load,
        Some(waiting) if waiting < ahead => BUSY + waiting,
        Some(_) => NOBODY,
    }
}

impl Policy for AutoClone {
    fn place(&mut self, loads: Loads<'_>, _random: u64) -> Placement {
        let count = loads.outstanding.len();
        self.begin(count);
        let (rank, original) = self.find(loads, count, self.level);
        if rank == NOBODY {
            return Placement::Hold;
        }
        self.next = original + 1;
        if rank >= BUSY {
            self.level = BUSY - 1;
            return Placement::One(WorkerId::at(original));
        }
        self.level = rank;
        let mut placement = Placement::One(WorkerId::at(original));
        if self.balance > 0 {
            let (rank, copy) = self.find(loads, count - 1, self.copy_level);
            if rank < BUSY {
                self.copy_level = rank;
                self.occupy(rank, copy);
                placement = Placement::Two(WorkerId::at(original), WorkerId::at(copy));
            }
        }
        self.occupy(rank, original);
        placement
    }
}

/// The rank of a server with no idle thread, where nobody waits.
const BUSY: u32 = 1 << 31;

/// The threads of a server that is not known to have any number of them: more than it has requests.
const UNKNOWN: u32 = BUSY;

/// Above any rank.
const NOBODY: u32 = u32::MAX;

/// So long are threads believed in. What few requests are placed before they are known again is
/// beyond any percentile that is looked at.
const PLACEMENTS_BELIEVED: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::super::tests::{OUT, one, two};
    use super::*;
    use proptest::prelude::*;

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
    fn the_first_that_is_as_idle_as_the_last_is_taken() {
        let mut policy = AutoClone::default();
        let none = [0; 5];
        let mut place = |outstanding: &[u32; 5]| {
            policy.place(Loads { outstanding, reported: &none, waiting: &none }, 0)
        };
        assert_eq!(place(&[3, 1, 2, 2, 9]), two(1, 2));
        // From the third on: as few as the last had are found before the fewest.
        assert_eq!(place(&[0, 2, 1, 2, 9]), two(2, 3));
        assert_eq!(place(&[0, 2, 3, 2, 9]), two(0, 1));
        assert_eq!(place(&[1, 2, 3, 2, 9]), two(0, 1));
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

    proptest! {
        /// Whatever was placed before: nobody waits while a thread is idle, and no copy does.
        #[test]
        fn an_idle_thread_comes_first(
            threads in proptest::collection::vec(1u32..5, 1..9),
            steps in proptest::collection::vec((any::<bool>(), 0usize..9), 1..60),
        ) {
            let mut policy = AutoClone::default();
            policy.begin(threads.len());
            for (known, &threads) in policy.servers.iter_mut().zip(&threads) {
                known.threads = threads;
            }
            let (mut outstanding, none) = (vec![0u32; threads.len()], vec![0; threads.len()]);
            for (is_arrival, at) in steps {
                if !is_arrival {
                    let at = at % threads.len();
                    outstanding[at] = outstanding[at].saturating_sub(1);
                    continue;
                }
                let is_idle = |at: usize| outstanding[at] < threads[at];
                let has_room = |at: usize| outstanding[at] < threads[at] + threads[at] / 8 + 1;
                let any_idle = (0..threads.len()).any(is_idle);
                let loads = Loads { outstanding: &outstanding, reported: &none, waiting: &none };
                let taken = match policy.place(loads, 0) {
                    Placement::Hold => {
                        prop_assert!(!(0..threads.len()).any(has_room));
                        vec![]
                    }
                    Placement::One(first) => {
                        prop_assert!(has_room(first.index()));
                        prop_assert!(is_idle(first.index()) || !any_idle);
                        vec![first]
                    }
                    Placement::Two(first, second) => {
                        prop_assert!(first != second);
                        prop_assert!(is_idle(first.index()) && is_idle(second.index()));
                        vec![first, second]
                    }
                };
                taken.into_iter().for_each(|worker| outstanding[worker.index()] += 1);
            }
        }
    }
}
