//! Published figures, simulated again, with a verdict on each value.
//!
//! A [`Reproduction`] is a function from an [`Effort`] to a [`Figure`]. Its expected values are exact
//! where there is a closed form, or published; each has the tolerance that its own error allows,
//! and says in its module where it is from.

mod bound;
mod chip;
mod cloning;
pub mod cores;
mod effort;
pub mod figure;
mod homa;
mod homa_short;
mod laedge;
mod netclone;
mod queues;
mod racksched;
mod replication;
mod search;
pub mod verdict;

use anyhow::Result;

pub use effort::Effort;
use figure::Figure;

/// A published figure.
pub struct Reproduction {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a line.
    pub about: &'static str,
    /// Simulates it.
    pub run: fn(Effort) -> Result<Figure>,
}

/// All of them.
pub const REPRODUCTIONS: [Reproduction; 18] = [
    Reproduction {
        name: "rpcvalet-queues",
        about: "queues before 16 workers: exact figures, policies, and the load that keeps a p99 of 10 services",
        run: queues::figure,
    },
    Reproduction {
        name: "rpcvalet-chip",
        about: "RPCValet's chip: throughput under its SLO, and the tail",
        run: chip::figure,
    },
    Reproduction {
        name: "jbsq-bound",
        about: "R2P2's router: the load that keeps a p99 of 10 services, by bound and delay",
        run: bound::figure,
    },
    Reproduction {
        name: "netclone-exp25",
        about: "NetClone and what it is compared with, exponential services of 25 us",
        run: netclone::exponential,
    },
    Reproduction {
        name: "netclone-bimodal",
        about: "NetClone with bimodal services, where nobody waits",
        run: netclone::bimodal,
    },
    Reproduction {
        name: "laedge",
        about: "LAEDGE's coordinator, with a slot for each server and for each worker",
        run: laedge::figure,
    },
    Reproduction {
        name: "racksched-hetero",
        about: "RackSched where servers differ, over random placement",
        run: racksched::figure,
    },
    Reproduction {
        name: "replication-threshold",
        about: "the load up to which sending every request twice helps",
        run: replication::figure,
    },
    Reproduction {
        name: "homa-w1",
        about: "W1 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w1,
    },
    Reproduction {
        name: "homa-w2",
        about: "W2 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w2,
    },
    Reproduction {
        name: "homa-w3",
        about: "W3 at a load of 0.8 against the published curve, and the same messages by others",
        run: homa::w3,
    },
    Reproduction {
        name: "homa-w4",
        about: "W4 at a load of 0.8 against the published curve, and the same messages by others",
        run: homa::w4,
    },
    Reproduction {
        name: "homa-w5",
        about: "W5 at a load of 0.8: Homa, plain messages, streams, and the bound",
        run: homa::w5,
    },
    Reproduction {
        name: "homa-priorities",
        about: "Homa on W3 with 1, 2, 4 and 8 priorities",
        run: homa::priorities,
    },
    Reproduction {
        name: "homa-overcommitment",
        about: "Homa on W4 with one message granted at a time, and with seven",
        run: homa::overcommitment,
    },
    Reproduction {
        name: "homa-basic",
        about: "Homa's echoes without priorities and without a limit of messages at once",
        run: homa::basic,
    },
    Reproduction {
        name: "homa-single-switch",
        about: "Homa's echoes between 8 clients and 8 servers at one switch",
        run: homa::single_switch,
    },
    Reproduction {
        name: "homa-short-packets",
        about: "Homa on W3 and W4 with packets of half the length, over as published",
        run: homa_short::figure,
    },
];
