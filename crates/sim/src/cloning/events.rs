//! The event queue: services on the agenda, packets on links.
//!
//! A link has a constant delay, so its packets arrive in the order in which they left, and a queue
//! holds them. Half of all events never meet the agenda that way, which makes a run more than twice
//! as fast.
//!
//! Invariant: events leave in the order of their times; at one time those of the agenda first, then
//! those of the links in the order of [`Link`].

use std::collections::VecDeque;

use tailcut_proto::policy::WorkerId;

use crate::agenda::Agenda;

/// One copy of a request, or its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    /// Time at which the client sent the request, ps.
    pub(super) sent_ps: u64,
    /// The base service of both copies; 0 where each draws its own. ps.
    pub(super) base_ps: u64,
    /// The request, counted from 1 in the order in which they pass the switch.
    pub(super) id: u32,
    /// Mark of the copy.
    pub(super) mark: Mark,
    /// The filter table that the client drew, 0 or 1.
    pub(super) table: u8,
    /// The server of the other copy; `None` where there is none.
    pub(super) other: Option<WorkerId>,
}

/// The mark that a switch writes into a request, and a server echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The switch made no clone of it.
    Sole,
    /// The switch made a clone of it.
    Original,
    /// The clone.
    Clone,
}

/// Load of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Requests that wait or run there.
    pub(super) outstanding: u32,
    /// Number of these that wait.
    pub(super) waiting: u32,
}

/// Something that happens later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A copy comes to its server.
    Reached(WorkerId, Packet),
    /// A worker of the server has finished it.
    Finished(WorkerId, Packet),
    /// The response passes the switch, with what its server reports; with LAEDGE it comes to the
    /// coordinator.
    Returned(WorkerId, Packet, u32),
    /// The router hears that a copy is concluded, and how its server stands.
    Heard(WorkerId, Standing),
    /// The server hears that nobody waits for its copy of this request any more.
    Cancelled(WorkerId, Packet),
    /// The coordinator has dealt with a request.
    RequestDone(Packet),
    /// The coordinator has dealt with a response.
    ResponseDone(WorkerId, Packet),
}

/// The links that packets travel on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// To a server.
    Requests,
    /// To a server by way of recirculation.
    Clones,
    /// From a server.
    Responses,
    /// From a server to the router.
    Feedback,
    /// From a client to a server, to cancel.
    Cancels,
}

/// Everything that is yet to happen, but for departures.
#[derive(Debug, Default)]
pub(super) struct Events {
    agenda: Agenda<Event>,
    links: [VecDeque<(u64, Event)>; 5],
}

impl Events {
    /// Posts an event at any time.
    pub(super) fn post(&mut self, time_ps: u64, event: Event) {
        self.agenda.post(time_ps, event);
    }

    /// Sends a packet over a link, to arrive no earlier than those sent before.
    pub(super) fn send(&mut self, link: Link, time_ps: u64, event: Event) {
        let packets = &mut self.links[link as usize];
        debug_assert!(
            packets.back().is_none_or(|&(last_ps, _)| last_ps <= time_ps),
            "a link keeps the order"
        );
        packets.push_back((time_ps, event));
    }

    /// Takes the next event if it is due at `until_ps` or before.
    pub(super) fn pop_until(&mut self, until_ps: u64) -> Option<(u64, Event)> {
        let fronts = self
            .links
            .iter()
            .enumerate()
            .filter_map(|(link, packets)| packets.front().map(|&(time_ps, _)| (time_ps, link)));
        let first = fronts.min().filter(|&(time_ps, _)| time_ps <= until_ps);
        let Some((time_ps, link)) = first else {
            return self.agenda.pop_until(until_ps);
        };
        self.agenda.pop_until(time_ps).or_else(|| self.links[link].pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u32) -> Event {
        let mark = Mark::Sole;
        Event::RequestDone(Packet { sent_ps: 0, base_ps: 0, id, mark, table: 0, other: None })
    }

    #[test]
    fn events_leave_by_time_then_agenda_then_links() {
        let mut events = Events::default();
        events.send(Link::Responses, 5, event(4));
        events.send(Link::Requests, 5, event(2));
        events.send(Link::Clones, 5, event(3));
        events.post(5, event(1));
        events.post(9, event(6));
        events.send(Link::Requests, 8, event(5));
        let left: Vec<_> = std::iter::from_fn(|| events.pop_until(9)).collect();
        assert_eq!(
            left,
            [
                (5, event(1)),
                (5, event(2)),
                (5, event(3)),
                (5, event(4)),
                (8, event(5)),
                (9, event(6))
            ]
        );
    }

    #[test]
    fn an_event_can_be_left_for_later() {
        let mut events = Events::default();
        events.send(Link::Requests, 5, event(1));
        events.post(7, event(2));
        assert_eq!(events.pop_until(4), None);
        assert_eq!(events.pop_until(6), Some((5, event(1))));
        assert_eq!(events.pop_until(6), None);
        assert_eq!(events.pop_until(7), Some((7, event(2))));
    }
}
