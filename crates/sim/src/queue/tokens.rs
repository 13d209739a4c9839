//! The token FIFO, to compare JBSQ's counts with.
//!
//! Each worker has as many tokens as the bound says, in one FIFO. A request takes the first token
//! and goes to its worker; a conclusion puts the token back at the end. So a request may go to a
//! busy worker while another is idle, which costs 8 to 20 % of the p99 with exponential service
//! (RPCValet's design sensitivity, `rpcvalet.md` section 4).
//!
//! Invariant: a worker's tokens in the FIFO and its outstanding requests add up to the bound.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use tailcut_proto::policy::{Loads, OUT_OF_SERVICE, Placement, Policy, WorkerId};

/// The bounded queue that goes by the oldest returned token instead of by the counts.
#[derive(Clone, Debug)]
pub struct Tokens {
    bound: u32,
    /// Workers in the order in which their tokens came back. At first they take turns.
    free: VecDeque<WorkerId>,
}

impl Tokens {
    /// `bound` tokens for each of `workers` workers, all free.
    pub fn new(workers: usize, bound: NonZeroU32) -> Self {
        let round = 0..bound.get();
        Self {
            bound: bound.get(),
            free: round.flat_map(|_| (0..workers).map(WorkerId::at)).collect(),
        }
    }
}

impl Policy for Tokens {
    fn place(&mut self, loads: Loads<'_>, _random: u64) -> Placement {
        let loads = loads.outstanding;
        let first = self.free.iter().position(|worker| loads[worker.index()] != OUT_OF_SERVICE);
        first.and_then(|first| self.free.remove(first)).map_or(Placement::Hold, Placement::One)
    }

    fn bound(&self) -> Option<u32> {
        Some(self.bound)
    }

    fn note_concluded(&mut self, worker: WorkerId) {
        self.free.push_back(worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads of workers that report nothing.
    fn loads(outstanding: &[u32; 2]) -> Loads<'_> {
        Loads { outstanding, reported: &[0, 0], waiting: &[0, 0] }
    }

    #[test]
    fn the_oldest_token_goes_first() {
        let mut tokens = Tokens::new(2, NonZeroU32::new(2).unwrap());
        let place = |tokens: &mut Tokens| tokens.place(loads(&[0, 0]), 0);
        let taken: Vec<_> = (0..5).map(|_| place(&mut tokens)).collect();
        let one = |worker| Placement::One(WorkerId(worker));
        assert_eq!(taken, [one(0), one(1), one(0), one(1), Placement::Hold]);
        tokens.note_concluded(WorkerId(1));
        tokens.note_concluded(WorkerId(0));
        assert_eq!([place(&mut tokens), place(&mut tokens)], [one(1), one(0)]);
    }

    #[test]
    fn a_token_of_a_worker_out_of_service_waits() {
        let mut tokens = Tokens::new(2, NonZeroU32::MIN);
        assert_eq!(tokens.place(loads(&[OUT_OF_SERVICE, 0]), 0), Placement::One(WorkerId(1)));
        assert_eq!(tokens.place(loads(&[OUT_OF_SERVICE, 0]), 0), Placement::Hold);
        assert_eq!(tokens.place(loads(&[0, 0]), 0), Placement::One(WorkerId(0)));
    }
}
