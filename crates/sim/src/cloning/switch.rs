//! The switch: the table of reported loads, the policy, and the response filter.
//!
//! The switch program keeps the table twice, because a packet may touch a register array only once
//! and two servers are compared. Both copies are written at the same instant, so one is enough
//! here.

use std::num::NonZeroU32;

use tailcut_proto::policy::{Loads, Placement, Policy, WorkerId};
use tailcut_proto::reply_filter::{ReplyFilter, Verdict};

use super::Scheme;
use super::events::{Mark, Packet};

/// A switch in front of the servers.
#[derive(Debug)]
pub(super) struct Switch {
    /// The last report of each server; 0 at the start.
    reports: Vec<u32>,
    /// Requests outstanding as a switch knows them: it counts nothing.
    outstanding: Vec<u32>,
    /// Decides by the reports, or by nothing.
    policy: Box<dyn Policy>,
    /// Drops the slower of two responses. Ids count from 1, and are the cells' hashes.
    filter: ReplyFilter<NonZeroU32>,
}

impl Switch {
    /// A switch that takes every server for idle.
    pub(super) fn new(scheme: Scheme, servers: usize) -> Self {
        Self {
            reports: vec![0; servers],
            outstanding: vec![0; servers],
            policy: scheme.policy(),
            filter: ReplyFilter::new(ReplyFilter::<NonZeroU32>::PUBLISHED_LEN),
        }
    }

    /// Placement of a request.
    pub(super) fn place(&mut self, random: u64) -> Placement {
        // One register a server, whatever the servers put there.
        let (reported, waiting) = (&self.reports, &self.reports);
        let loads = Loads { outstanding: &self.outstanding, reported, waiting };
        self.policy.place(loads, random)
    }

    /// Takes the report of a response that passes, and judges the response.
    pub(super) fn pass(&mut self, server: WorkerId, packet: &Packet, report: u32) -> Verdict {
        self.reports[server.index()] = report;
        match packet.mark {
            Mark::Sole => Verdict::Forward,
            Mark::Original | Mark::Clone => match NonZeroU32::new(packet.id) {
                Some(id) => self.filter.judge(packet.table.into(), packet.id.into(), id),
                None => Verdict::Forward,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [WorkerId; 2] = [WorkerId(0), WorkerId(1)];

    fn packet(id: u32, mark: Mark) -> Packet {
        Packet { sent_ps: 0, base_ps: 0, id, mark, table: 0, other: None }
    }

    #[test]
    fn servers_are_idle_until_they_report() {
        let mut switch = Switch::new(Scheme::NetClone, 2);
        assert!(matches!(switch.place(1), Placement::Two(..)));
        assert_eq!(switch.pass(SERVERS[1], &packet(1, Mark::Sole), 3), Verdict::Forward);
        assert!(matches!(switch.place(1), Placement::One(_)));
    }

    #[test]
    fn the_report_of_a_dropped_response_counts() {
        let mut switch = Switch::new(Scheme::NetClone, 2);
        assert_eq!(switch.pass(SERVERS[0], &packet(1, Mark::Original), 0), Verdict::Forward);
        assert_eq!(switch.pass(SERVERS[1], &packet(1, Mark::Clone), 3), Verdict::Drop);
        assert!(matches!(switch.place(1), Placement::One(_)));
    }

    #[test]
    fn copies_that_the_switch_did_not_make_are_not_filtered() {
        let mut switch = Switch::new(Scheme::CClone, 2);
        for server in SERVERS {
            assert_eq!(switch.pass(server, &packet(1, Mark::Sole), 0), Verdict::Forward);
        }
    }
}
