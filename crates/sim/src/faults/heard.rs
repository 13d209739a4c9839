//! Knowledge of strangers about a run, where its plan has them make use of it.
//!
//! | heard | used by |
//! |---|---|
//! | the last request that has arrived | CANCELs of it |
//! | reports that routers have had | sent again |
//! | the last first packet of a request that has left a client | what is made of it, where servers ask for cookies |

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use tailcut_proto::r2p2::AskCookies;
use tailcut_wire::homa::DataHeader;
use tailcut_wire::homa::tagged::tag_of;
use tailcut_wire::r2p2::{MessageType, Packet};

use super::plan::{Attack, Host, Plan};

/// The record of it.
#[derive(Debug)]
pub(super) struct Heard {
    /// The server and the id of the request that arrived last.
    pub(super) last_request: Option<(Host, u64)>,
    /// Reports that routers have had, oldest first.
    reports: Option<VecDeque<(Host, Host, Vec<u8>)>>,
    /// The client, and the packet.
    first: Option<(usize, Vec<u8>)>,
    /// Somebody makes use of that.
    keeps_first: bool,
    /// Tags by cookies, and the clients that have written them, where there are any.
    tags: Option<BTreeSet<(usize, u64)>>,
}

impl Heard {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            last_request: None,
            reports: plan.has_attack(Attack::StaleFeedback).then(VecDeque::new),
            first: None,
            keeps_first: plan.has_attack(Attack::Unproven),
            tags: (plan.cookies != AskCookies::Never).then(BTreeSet::new),
        }
    }

    /// Keeps a server's report to a router.
    pub(super) fn keep_report(
        &mut self,
        (router, from): (Host, SocketAddr),
        packet: &Packet,
        bytes: &[u8],
    ) {
        let Some(reports) = &mut self.reports else { return };
        let Some(server @ Host::Server(_)) = Host::at(from) else { return };
        if packet.message_type == MessageType::Feedback {
            if reports.len() == REPORTS_LEN_MAX {
                reports.pop_front();
            }
            reports.push_back((router, server, bytes.to_vec()));
        }
    }

    /// A report that a router has had before: the router, the server and the datagram.
    pub(super) fn report_before(&self, word: u64) -> Option<(Host, Host, Vec<u8>)> {
        let reports = self.reports.as_ref()?;
        let index = (word >> 8) as usize % reports.len().max(1);
        reports.get(index).cloned()
    }

    /// The last report that the router has had of the first server.
    pub(super) fn last_report(&self) -> Option<Vec<u8>> {
        let mut reports = self.reports.as_ref()?.iter().rev();
        let of_first = |(router, server, _): &&(Host, Host, Vec<u8>)| {
            (*router, *server) == (Host::Router, Host::Server(0))
        };
        reports.find(of_first).map(|(_, _, bytes)| bytes.clone())
    }

    /// A datagram leaves a client.
    pub(super) fn keep_first(&mut self, client: usize, packet: &Packet, bytes: &[u8]) {
        if packet.message_type != MessageType::Request || packet.index != 0 {
            return;
        }
        if self.keeps_first {
            self.first = Some((client, bytes.to_vec()));
        }
        if let Some(tags) = &mut self.tags {
            tags.insert((client, packet.token()));
        }
    }

    /// A datagram leaves a client over Homa, where it is what needs no grant that bears a tag.
    pub(super) fn keep_first_of_homa(&mut self, client: usize, header: &DataHeader, bytes: &[u8]) {
        if self.keeps_first && header.offset() == 0 {
            self.first = Some((client, bytes.to_vec()));
        }
        if let Some((tags, tag)) = self.tags.as_mut().zip(tag_of(header)) {
            tags.insert((client, tag));
        }
    }

    /// True if first packets bear tags, which validate a client's address.
    pub(super) fn are_tagged(&self) -> bool {
        self.tags.is_some()
    }

    /// True if a client has written this tag.
    pub(super) fn has_tagged(&self, client: usize, tag: u64) -> bool {
        self.tags.as_ref().is_some_and(|tags| tags.contains(&(client, tag)))
    }

    /// The client that began a request last, and its packet.
    pub(super) fn first(&self) -> Option<(usize, Vec<u8>)> {
        self.first.clone()
    }
}

/// Reports that are kept.
const REPORTS_LEN_MAX: usize = 1024;
