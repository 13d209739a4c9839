//! Published figures, simulated again, with a verdict on each value.
//!
//! A [`Reproduction`] is a function from an [`Effort`] to a [`Figure`]. Its expected values are
//! exact where there is a closed form, or published; each has the tolerance that its own error
//! allows, and says in its module where it is from.

mod auto;
mod bound;
mod chip;
mod cloning;
mod cloning_map;
pub mod cores;
mod detection;
mod dispatcher;
mod effort;
pub mod figure;
mod homa;
mod homa_bound;
mod laedge;
mod netclone;
mod overload;
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
    /// Its content, in a line.
    pub about: &'static str,
    /// Simulates it.
    pub run: fn(Effort) -> Result<Figure>,
    /// Its curves are wanted as a table too, which says whose is the lowest.
    pub is_map: bool,
}

/// All of them.
pub const REPRODUCTIONS: [Reproduction; 23] = [
    reproduction(
        "rpcvalet-queues",
        "queues before 16 workers: exact figures, policies, and the load that keeps a p99 of 10 services",
        queues::figure,
    ),
    reproduction(
        "rpcvalet-chip",
        "RPCValet's chip: throughput under its SLO, and the tail",
        chip::figure,
    ),
    reproduction(
        "rpcvalet-software",
        "a dispatcher with measured costs before 16 and 64 workers, against partitioned ones",
        dispatcher::figure,
    ),
    reproduction(
        "jbsq-bound",
        "R2P2's router: the load that keeps a p99 of 10 services, by bound and delay",
        bound::figure,
    ),
    reproduction(
        "jbsq-auto",
        "jbsq:auto: its p99 over that of the best fixed bound, by way, service, load, workers, pauses",
        auto::figure,
    ),
    reproduction(
        "netclone-exp25",
        "NetClone and what it is compared with, exponential services of 25 us",
        netclone::exponential,
    ),
    reproduction(
        "netclone-bimodal",
        "NetClone with bimodal services, where nobody waits",
        netclone::bimodal,
    ),
    reproduction(
        "laedge",
        "LAEDGE's coordinator, with a slot for each server and for each worker",
        laedge::figure,
    ),
    reproduction(
        "racksched-hetero",
        "RackSched where servers differ, over random placement",
        racksched::figure,
    ),
    reproduction(
        "replication-threshold",
        "the load up to which sending every request twice helps",
        replication::figure,
    ),
    Reproduction {
        is_map: true,
        ..reproduction(
            "cloning-map",
            "which way of cloning has the lowest p99, over load, service, jitter and copies",
            cloning_map::figure,
        )
    },
    reproduction(
        "homa-w1",
        "W1 at a load of 0.8: Homa, plain messages, streams, and the bound",
        |effort| homa::workload(effort, &homa::W1),
    ),
    reproduction(
        "homa-w2",
        "W2 at a load of 0.8: Homa, plain messages, streams, and the bound",
        |effort| homa::workload(effort, &homa::W2),
    ),
    reproduction(
        "homa-w3",
        "W3 at a load of 0.8 against the published curve, and the same messages by others",
        |effort| homa::workload(effort, &homa::W3),
    ),
    reproduction(
        "homa-w4",
        "W4 at a load of 0.8 against the published curve, and the same messages by others",
        |effort| homa::workload(effort, &homa::W4),
    ),
    reproduction(
        "homa-w5",
        "W5 at a load of 0.8: Homa, plain messages, streams, and the bound",
        |effort| homa::workload(effort, &homa::W5),
    ),
    reproduction("homa-priorities", "Homa on W3 with 1, 2, 4 and 8 priorities", homa::priorities),
    reproduction(
        "homa-overcommitment",
        "Homa on W4 with one message granted at a time, and with seven",
        homa::overcommitment,
    ),
    reproduction(
        "homa-basic",
        "Homa's echoes without priorities and without a limit of messages at once",
        homa::basic,
    ),
    reproduction(
        "homa-single-switch",
        "Homa's echoes between 8 clients and 8 servers at one switch",
        homa::single_switch,
    ),
    reproduction(
        "homa-bound",
        "Homa on W1 to W5 at 0.5 and 0.8 over what no transport can do better than",
        homa_bound::figure,
    ),
    reproduction(
        "overload",
        "goodput and p99 at up to a hundred times the capacity: FIFO, CoDel, adaptive LIFO",
        overload::figure,
    ),
    Reproduction {
        is_map: true,
        ..reproduction(
            "detection",
            "how soon a router sees that a server is gone, against false alarms, by silent_ns",
            detection::figure,
        )
    },
];

const fn reproduction(
    name: &'static str,
    about: &'static str,
    run: fn(Effort) -> Result<Figure>,
) -> Reproduction {
    Reproduction { name, about, run, is_map: false }
}
