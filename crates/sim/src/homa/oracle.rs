//! The bound: shortest remaining message first, by one who knows all messages and moves them
//! without packets.
//!
//! At each instant messages are matched in the order of their remaining bytes, where a host sends
//! one and receives one at a time, and the matched ones move at the rate of a host's link. A
//! message that never waits takes the time that slowdowns are multiples of; what it waits is added.
//! No network can do that: it would have to know at once what every host has to send.
//!
//! Invariant: between two events no host sends or receives more than one message.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tailcut_measure::workload::Workload;

use crate::PS_PER_NS;

use super::load::{Message, Source};

/// Moves all messages that are due before `until_ns`, and gives each to `done` with what it waited,
/// ps.
///
/// `link_ps` is the time of a message's bytes on a host's link.
pub(super) fn run(
    sources: &mut [Source],
    workload: &Workload,
    until_ns: u64,
    link_ps: fn(u64) -> u64,
    mut done: impl FnMut(&Message, u64),
) {
    let mut queue = Queue::new(sources.len());
    let mut finish = |message: &Message, end_ps: u64| {
        done(message, end_ps - message.at_ns * PS_PER_NS - link_ps(message.len));
    };
    let due = |source: &Source, host| Reverse((source.next_ns(), host));
    let mut next: BinaryHeap<_> =
        sources.iter().enumerate().map(|(host, source)| due(source, host)).collect();
    while let Some(Reverse((at_ns, host))) = next.pop().filter(|first| first.0.0 < until_ns) {
        queue.run_until(at_ns * PS_PER_NS, &mut finish);
        let message = sources[host].take(workload);
        queue.push(message, link_ps(message.len));
        next.push(due(&sources[host], host));
    }
    queue.run_until(u64::MAX, &mut finish);
}

/// All messages that are on their way.
struct Queue {
    now_ps: u64,
    moving: Vec<Moving>,
    /// By host: true if it sends, and if it receives.
    senders: Vec<bool>,
    receivers: Vec<bool>,
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
struct Moving {
    message: Message,
    /// Time on a host's link that it still needs, ps.
    remaining_ps: u64,
    is_moving: bool,
}

impl Queue {
    fn new(hosts: usize) -> Self {
        Self {
            now_ps: 0,
            moving: Vec::new(),
            senders: vec![false; hosts],
            receivers: vec![false; hosts],
        }
    }

    fn push(&mut self, message: Message, remaining_ps: u64) {
        let place = self.moving.partition_point(|it| it.remaining_ps <= remaining_ps);
        self.moving.insert(place, Moving { message, remaining_ps, is_moving: false });
        self.match_shortest_first();
    }

    /// Moves messages up to `until_ps`; those that end are given to `done` with their time.
    fn run_until(&mut self, until_ps: u64, mut done: impl FnMut(&Message, u64)) {
        while let Some(step_ps) =
            self.moving.iter().filter(|it| it.is_moving).map(|it| it.remaining_ps).min()
        {
            let end_ps = self.now_ps + step_ps;
            self.advance(end_ps.min(until_ps));
            if end_ps > until_ps {
                return;
            }
            self.moving.retain(|it| {
                if it.remaining_ps == 0 {
                    done(&it.message, end_ps);
                }
                it.remaining_ps > 0
            });
            self.match_shortest_first();
        }
        self.now_ps = until_ps;
    }

    fn advance(&mut self, to_ps: u64) {
        for it in self.moving.iter_mut().filter(|it| it.is_moving) {
            it.remaining_ps -= to_ps - self.now_ps;
        }
        self.now_ps = to_ps;
        // Almost in order: only those that moved have come forward.
        self.moving.sort_by_key(|it| it.remaining_ps);
    }

    fn match_shortest_first(&mut self) {
        self.senders.fill(false);
        self.receivers.fill(false);
        for it in &mut self.moving {
            let (sender, receiver) = (
                &mut self.senders[it.message.from as usize],
                &mut self.receivers[it.message.to as usize],
            );
            it.is_moving = !*sender && !*receiver;
            *sender |= it.is_moving;
            *receiver |= it.is_moving;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the waiting time of each of `messages` (due, sender, receiver, length), ns. A byte
    /// takes a nanosecond.
    fn check(messages: [(u64, u32, u32, u64); 3], expected_ns: [u64; 3]) {
        let mut waited_ns = [0; 3];
        let mut queue = Queue::new(4);
        for (at_ns, from, to, len) in messages {
            queue.run_until(at_ns * PS_PER_NS, |message, end_ps| {
                note(&messages, &mut waited_ns, message, end_ps)
            });
            queue.push(
                Message { at_ns, from, to, len, incast: None, is_asked: false },
                len * PS_PER_NS,
            );
        }
        queue.run_until(u64::MAX, |message, end_ps| {
            note(&messages, &mut waited_ns, message, end_ps)
        });
        assert_eq!(waited_ns, expected_ns);
    }

    fn note(
        messages: &[(u64, u32, u32, u64); 3],
        waited_ns: &mut [u64; 3],
        message: &Message,
        end_ps: u64,
    ) {
        let Message { at_ns, from, to, len, .. } = *message;
        let place = messages.iter().position(|&it| it == (at_ns, from, to, len));
        waited_ns[place.expect("it is one of them")] = end_ps / PS_PER_NS - at_ns - len;
    }

    #[test]
    fn a_shorter_message_interrupts_a_longer_one() {
        check([(0, 0, 1, 1000), (100, 0, 2, 50), (2000, 2, 3, 10)], [50, 0, 0]);
    }

    #[test]
    fn a_receiver_takes_one_message_at_a_time() {
        check([(0, 0, 3, 1000), (100, 1, 3, 950), (200, 2, 3, 1)], [1, 901, 0]);
    }

    /// The second waits for its sender, so the third may have its receiver, and by then has less
    /// left than the second.
    #[test]
    fn what_cannot_move_leaves_its_hosts_to_others() {
        check([(0, 0, 1, 100), (0, 0, 2, 200), (0, 3, 2, 250)], [0, 250, 0]);
    }
}
