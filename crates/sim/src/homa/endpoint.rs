//! Homa itself: the endpoint that also runs over sockets, as a transport of an experiment.
//!
//! The published simulation sends messages one way. Here a message is a request, and its reply
//! tells the sender when it arrived, so that the endpoint runs through everything that it does for
//! a call. What the published simulation has no equal of (replies, acknowledgements, cutoffs) goes
//! beside the links, where it loads nothing; everything else is charged what the published
//! simulation charges, because the endpoint's own headers are longer.
//!
//! | packet | on the links |
//! |---|---|
//! | data of a request | its data with a header of 30 bytes, or of 16 where it needed a grant |
//! | GRANT, RESEND, BUSY, RPC_UNKNOWN | the shortest frame |
//! | data of a reply | as that of a request; beside the links where messages go one way and it is but an acknowledgement |
//! | ACK, NEED_ACK, CUTOFFS, FREEZE | beside the links |
//!
//! Invariant: what is sent, and when and with which priority, is decided by the endpoint alone.

use std::net::SocketAddr;

use tailcut_measure::workload::Workload;
use tailcut_proto::homa::{Config, Cutoffs, Endpoint, Framing, GrantPolicy, Grants, Pull};
use tailcut_proto::node::{Node, Path, Time, Transmit};
use tailcut_proto::rpc::{Call, CallOptions, Event, Rpc};
use tailcut_wire::homa::{Body, Packet};

use super::messenger::{ASK_LEN, Arrival, Messenger};
use super::paper::Cut;
use super::{Said, levels, paper};
use crate::PS_PER_NS;
use crate::network::Carriage;

/// Configuration of Homa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Policy by which grants are given.
    pub policy: Policy,
    /// Priorities of the network that are used, 1 to 8.
    pub priorities: u8,
    /// Messages that a receiver grants at once, 1 to 16; `None` for the published number of the
    /// workload.
    pub overcommit: Option<u8>,
    /// Timers by which endpoints ask for what has not come.
    pub timers: Timers,
    /// Bytes of a message that go without a grant, 1 to 100,000; `None` for those of the policy. A
    /// packet behind them is charged as one that needs no grant up to those of the published
    /// simulation, whose headers are longer.
    pub unscheduled_len: Option<u32>,
    /// Calls of a host outstanding above which it marks its requests, to which replies come with
    /// 400 bytes without a grant; never if `None`.
    pub marks_above: Option<u32>,
}

/// Timers by which endpoints ask for what has not come. Where buffers have no end nothing is lost,
/// so that they ask in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timers {
    /// Never, as in the published simulation.
    #[default]
    Quiet,
    /// As on a network, by the endpoint's defaults.
    Network,
}

/// Policy by which a receiver gives grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// As the published simulation.
    #[default]
    Sigcomm,
    /// As the kernel module, with 40 kB unscheduled.
    Module,
    /// As the published simulation, with packets of 1,000 bytes, behind which a short message waits
    /// less, and with rarer grants, which leave as much of the links as the headers take: see
    /// [`Cut::Short`].
    ShortPackets,
}

impl Default for Settings {
    fn default() -> Self {
        Self::PUBLISHED
    }
}

/// A host's end of Homa.
#[derive(Debug)]
pub(super) struct HomaHost {
    endpoint: Endpoint,
    /// A server's answer.
    answers: Answers,
    /// The highest level of the network, which is what higher ones become on it.
    level_max: u8,
    data_received_bytes: u64,
}

/// A server's answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// The time of its arrival.
    Ack,
    /// The message.
    Echo,
}

impl HomaHost {
    /// The endpoint at `host` of the run under `seed`.
    pub(super) fn new(mut config: Config, (seed, host): (u64, u32), answers: Answers) -> Self {
        config.secret = (u128::from(seed) << 64 | u128::from(host)).to_be_bytes();
        let level_max = config.priorities.levels - 1;
        Self { endpoint: Endpoint::new(0, config), answers, level_max, data_received_bytes: 0 }
    }

    /// Calls `to` with the first bytes of a request of some length.
    fn call(&mut self, now: Time, to: SocketAddr, request: (&[u8], u32), word: u64) -> bool {
        let (content, len) = request;
        let mut payload = self.endpoint.buffer();
        payload.extend_from_slice(content);
        let options = CallOptions::default();
        let call = Call { target: to, payload, deadline: now + TIMEOUT_NS, context: word, options };
        self.endpoint.call_padded(now, call, len).is_ok()
    }

    /// Bytes of a message in a datagram: of requests where they are echoed.
    fn message_data_len(&self, bytes: &[u8]) -> u64 {
        let Ok(packet) = Packet::parse(bytes) else { return 0 };
        let Body::Data { header, payload } = packet.body else { return 0 };
        let is_asked = self.answers == Answers::Ack && header.message_length.get() > ASK_LEN as u32;
        if packet.is_from_client() || is_asked { payload.len() as u64 } else { 0 }
    }
}

impl Node for HomaHost {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.data_received_bytes += self.message_data_len(bytes);
        self.endpoint.handle_datagram(now, path, bytes);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let transmit = self.endpoint.poll_transmit(now, buffer)?;
        Some(Transmit { priority: transmit.priority.min(self.level_max), ..transmit })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.endpoint.poll_timeout()
    }
}

impl Messenger for HomaHost {
    fn send(&mut self, now: Time, to: SocketAddr, len: u64, word: u64) -> bool {
        u32::try_from(len).is_ok_and(|long| {
            let content = &len.to_be_bytes()[..CONTENT_LEN.min(len as usize)];
            self.call(now, to, (content, long), word)
        })
    }

    fn ask(&mut self, now: Time, of: SocketAddr, len: u64, word: u64) -> bool {
        let content = (len | ASKS).to_be_bytes();
        self.call(now, of, (&content, ASK_LEN as u32), word | ASKS)
    }

    fn poll_arrival(&mut self, now: Time) -> Option<Arrival> {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Request { id, mut payload, .. } => {
                    let len = match self.answers {
                        Answers::Echo => message_len(&payload),
                        Answers::Ack if is_asked_for(&payload) => message_len(&payload),
                        Answers::Ack => {
                            payload.clear();
                            payload.extend_from_slice(&now.to_be_bytes());
                            0
                        }
                    };
                    // A request that is gone by now needs no answer.
                    let _ = self.endpoint.reply_padded(now, id, payload, len);
                }
                Event::Replied { context, payload, .. } => {
                    let is_ack = self.answers == Answers::Ack && context & ASKS == 0;
                    let at = match payload.first_chunk() {
                        Some(bytes) if is_ack => Time::from_be_bytes(*bytes),
                        _ => now,
                    };
                    self.endpoint.recycle(payload);
                    return Some(Arrival { word: context & !ASKS, at });
                }
                Event::Failed { .. } | Event::Cancelled { .. } => {}
            }
        }
        None
    }

    fn data_received_bytes(&self) -> u64 {
        self.data_received_bytes
    }

    fn said(&self) -> Option<Said> {
        let metrics = self.endpoint.metrics();
        let resent_bytes = metrics.resent_bytes;
        Some(Said {
            grants: metrics.grants,
            resends: metrics.resends,
            busy: metrics.busy,
            resent_bytes,
        })
    }
}

impl Settings {
    /// As in the published simulation.
    pub const PUBLISHED: Self = Self {
        policy: Policy::Sigcomm,
        priorities: 8,
        overcommit: None,
        timers: Timers::Quiet,
        unscheduled_len: None,
        marks_above: None,
    };

    /// True where there is an endpoint of this kind.
    pub(super) fn are_possible(&self) -> bool {
        (1..=8).contains(&self.priorities)
            && self.overcommit.is_none_or(|overcommit| (1..=16).contains(&overcommit))
            && self.unscheduled_len.is_none_or(|len| (1..=UNSCHEDULED_LEN_MAX).contains(&len))
    }

    /// Messages that a receiver of `workload` grants at once.
    pub fn overcommit(&self, workload: &Workload) -> u8 {
        self.overcommit.unwrap_or_else(|| levels::overcommit(workload))
    }

    /// The configuration of endpoints that carry `workload`.
    pub(super) fn config(&self, workload: &Workload) -> Config {
        let overcommit = self.overcommit(workload);
        let scheduled = levels::scheduled_levels(self.priorities, levels::overcommit(workload));
        let unscheduled = (self.priorities - scheduled).max(1);
        let cutoffs =
            by_level(&levels::cutoffs(workload, unscheduled, self.policy.cut()), self.priorities);
        let mut config = match self.policy {
            Policy::Sigcomm => Config::sigcomm(overcommit, cutoffs),
            Policy::Module => Config::default(),
            Policy::ShortPackets => short_packets(Config::sigcomm(overcommit, cutoffs)),
        };
        config.grants.overcommit = usize::from(overcommit);
        config.priorities.levels = self.priorities;
        config.priorities.cutoffs = cutoffs;
        config.priorities.scheduled_levels = scheduled;
        config.assumed = cutoffs;
        config.gso_batch_len_max = 1;
        unlimit(&mut config);
        if let Some(len) = self.unscheduled_len {
            config.unscheduled_len = len;
        }
        if let Some(calls) = self.marks_above {
            config.incast.calls_max = calls as usize;
        }
        if self.timers == Timers::Quiet {
            config.recovery.silence_initial_ns = QUIET_NS;
            config.recovery.silence_min_ns = QUIET_NS;
            config.recovery.silence_max_ns = QUIET_NS;
            config.recovery.gap_ns_min = QUIET_NS;
            config.recovery.need_ack_ns = QUIET_NS;
        }
        config
    }
}

impl Policy {
    /// Cut of messages into packets.
    fn cut(self) -> Cut {
        match self {
            Self::ShortPackets => Cut::Short,
            Self::Sigcomm | Self::Module => Cut::Full,
        }
    }
}

/// Shorter packets, of equal length where a message needs no grant, and rarer grants.
fn short_packets(config: Config) -> Config {
    let packet_len = Cut::Short.packet_len(u64::MAX) as u32;
    let (scheduled_len, grant_len) = Cut::Short.granted_lens();
    let (scheduled_len, grant_len) = (scheduled_len as u32, grant_len as u32);
    let framing =
        Framing { unscheduled_len: packet_len, scheduled_len, is_even: true, ..config.framing };
    let grant_wire_bytes = grant_len / scheduled_len * paper::scheduled_wire_bytes(scheduled_len);
    let grant_ns = u64::from(grant_wire_bytes) * paper::HOST_PS_PER_BYTE / PS_PER_NS;
    let policy = GrantPolicy::Sigcomm(Pull { grant_len, grant_ns, ..Pull::default() });
    Config { framing, grants: Grants { policy, ..config.grants }, ..config }
}

/// Nothing is lost here, and hosts hold whatever the load leaves with them; their tables grow with
/// that, since all hosts share the caches of one.
fn unlimit(config: &mut Config) {
    config.framing.content_len_max = CONTENT_LEN as u32;
    config.message_len_max = MESSAGE_LEN_MAX;
    config.rpc_len_max = MESSAGE_LEN_MAX as u32;
    config.calls_max = 1 << 20;
    config.calls_per_peer_max = 32_768;
    config.incast.calls_max = usize::MAX;
    config.serving.requests_max = 1 << 20;
    config.serving.table_room = 64;
    config.serving.requests_per_client_max = 1 << 20;
    config.serving.partials_max = 1 << 20;
    config.serving.partial_ns_max = TIMEOUT_NS;
    config.serving.held_bytes_max = usize::MAX / 2;
    config.serving.held_bytes_per_client_max = usize::MAX / 2;
}

/// The highest of `levels` levels first in `cutoffs`; those above are not used.
fn by_level(cutoffs: &[u64], levels: u8) -> Cutoffs {
    let mut by_level = [u32::MAX; 8];
    by_level[usize::from(levels)..].fill(0);
    for (level, &cutoff) in by_level[..usize::from(levels)].iter_mut().rev().zip(cutoffs) {
        *level = u32::try_from(cutoff).unwrap_or(u32::MAX);
    }
    Cutoffs { by_level, version: 1 }
}

/// The length of a request, of which the first bytes say it where they have room to.
fn message_len(content: &[u8]) -> u32 {
    content.first_chunk().map_or(content.len() as u32, |bytes| u64::from_be_bytes(*bytes) as u32)
}

/// True of a request that asks for a message, where messages go one way: none is as long as its
/// first bit says.
fn is_asked_for(content: &[u8]) -> bool {
    content.first_chunk().is_some_and(|bytes| u64::from_be_bytes(*bytes) & ASKS != 0)
}

/// The framing of datagrams where messages go one way.
pub(super) fn one_way_framing(bytes: &[u8]) -> Carriage {
    framing(bytes, Answers::Ack)
}

/// The framing of datagrams where messages are echoed.
pub(super) fn echo_framing(bytes: &[u8]) -> Carriage {
    framing(bytes, Answers::Echo)
}

fn framing(bytes: &[u8], answers: Answers) -> Carriage {
    let Ok(packet) = Packet::parse(bytes) else { return Carriage::Aside };
    match packet.body {
        Body::Data { header, payload } => {
            let is_ack = header.message_length.get() <= ASK_LEN as u32;
            if !packet.is_from_client() && answers == Answers::Ack && is_ack {
                return Carriage::Aside;
            }
            let data_len = payload.len() as u32;
            let is_unscheduled = u64::from(header.offset()) < paper::UNSCHEDULED_BYTES;
            let wire_bytes = if is_unscheduled {
                paper::unscheduled_wire_bytes
            } else {
                paper::scheduled_wire_bytes
            };
            Carriage::Links(wire_bytes(data_len))
        }
        Body::Grant(_) | Body::Resend(_) | Body::Busy | Body::RpcUnknown => {
            Carriage::Links(paper::CONTROL_WIRE_BYTES)
        }
        Body::Ack(_) | Body::NeedAck | Body::Cutoffs(_) | Body::Freeze | Body::Cookie(_) => {
            Carriage::Aside
        }
    }
}

/// The bit of a message's length that asks for one of it, and of a word under which one was asked
/// for.
const ASKS: u64 = 1 << 63;
/// Bytes of a message that say something: of a request how long it is, of an acknowledgement when
/// it was written.
const CONTENT_LEN: usize = ASK_LEN;
/// Bytes of a packet that may be anything but zero: an ACK is longer than the header of data and a
/// receipt.
pub(super) const HEAD_LEN: usize = 80;
/// Longer than any message takes that is not stuck.
const TIMEOUT_NS: u64 = 30_000_000_000;
/// Longer than any experiment: nothing is lost, so nothing is asked for again.
const QUIET_NS: u64 = 25_000_000_000;
/// As many bytes without a grant as an endpoint takes from another.
pub(super) const UNSCHEDULED_LEN_MAX: u32 = 100_000;
/// The longest message of the published workloads.
const MESSAGE_LEN_MAX: usize = 32_000_000;

#[cfg(test)]
mod tests {
    use super::super::{Counts, Experiment, Findings, Pattern, Transport};
    use super::*;

    /// Messages of `len` bytes alone at a load of 1 %, where few meet.
    fn run(len: u64, pattern: Pattern, policy: Policy) -> Findings {
        let workload = Workload::parse("test", &format!("{len}\n{len} 1\n")).expect("a workload");
        run_under(0.01, workload, pattern, Settings { policy, ..Settings::default() })
    }

    fn run_under(load: f64, workload: Workload, pattern: Pattern, settings: Settings) -> Findings {
        let experiment = Experiment {
            pattern,
            duration_ns: 50_000_000,
            warmup_ns: 1_000_000,
            ..Experiment::new(workload, load, 16, Transport::Homa(settings))
        };
        let findings = super::super::run(&experiment).expect("it can be run");
        let Counts { sent, received, .. } = findings.counts;
        assert!(sent > 0 && sent == received, "{:?}", findings.counts);
        findings
    }

    /// In a rack the ideal time has no delay of the switch (0.25 us), and no message has Homa's
    /// headers. Of a short one: 97 bytes of a frame instead of 84 are 21 ns more, so 1,905.2 over
    /// 1,634.4 ns.
    #[test]
    fn a_short_message_alone_takes_the_time_of_its_packet() {
        let p50 = run(1, Pattern::OneWay, Policy::Sigcomm).buckets[0].p50;
        assert!((p50 / (1905.2 / 1634.4) - 1.0).abs() < 0.001, "{p50}");
    }

    /// Headers of 16 bytes of 1,472, and nothing else: no grant is ever late.
    #[test]
    fn a_long_message_alone_fills_the_link() {
        for policy in [Policy::Sigcomm, Policy::Module] {
            let p50 = run(1_000_000, Pattern::OneWay, policy).buckets[0].p50;
            assert!((1.0..1.03).contains(&p50), "{policy:?}: {p50}");
        }
    }

    /// The first packet has half of 1,500 bytes, which is all that it waits for on the second link.
    /// Of a long message 10,000 bytes need one grant, where as published 1,456 do.
    #[test]
    fn short_packets_are_sooner_through_a_switch_and_need_a_seventh_of_the_grants() {
        let p50 = run(1500, Pattern::OneWay, Policy::ShortPackets).buckets[0].p50;
        let [short, ideal] = [paper::alone_ps(1500, 0, Cut::Short), paper::ideal_ps(1500, 0)];
        assert!((p50 / (short as f64 / ideal as f64) - 1.0).abs() < 0.001, "{p50}");
        let grants = |policy| {
            let found = run(1_000_000, Pattern::OneWay, policy);
            found.homa.expect("it is Homa").grants as f64 / found.counts.sent as f64
        };
        let [few, many] = [Policy::ShortPackets, Policy::Sigcomm].map(grants);
        assert!((0.14..0.16).contains(&(few / many)), "{few} and {many} for a message");
    }

    /// Nothing is lost, so that nothing may be asked for; and the short messages of the lower half
    /// never wait for grants: they take no more than some packets' times at either end.
    #[test]
    fn the_modules_policy_and_short_packets_carry_a_load() {
        for (policy, load) in
            [(Policy::Module, 0.5), (Policy::Module, 0.8), (Policy::ShortPackets, 0.8)]
        {
            let settings = Settings { policy, ..Settings::default() };
            let found = run_under(
                load,
                Workload::named("w3").expect("it is kept"),
                Pattern::OneWay,
                settings,
            );
            let (half, said) = (&found.buckets[..8], found.homa.expect("it is Homa"));
            println!("{policy:?} at {load}: {:?}, the lower half {half:?}", found.all);
            assert_eq!((said.resends, said.resent_bytes, said.busy), (0, 0, 0), "{policy:?}");
            assert!(
                half.iter().all(|bucket| (1.0..1.7).contains(&bucket.p50) && bucket.p99 < 4.0),
                "{policy:?}: {half:?}"
            );
        }
    }

    #[test]
    fn an_echo_alone_takes_the_time_of_two_messages() {
        for len in [100, 1442, 9328, 100_000] {
            let p50 = run(len, Pattern::Echo, Policy::Sigcomm).buckets[0].p50;
            assert!((1.0..1.02).contains(&p50), "{len}: {p50}");
        }
    }

    #[test]
    fn levels_above_those_of_the_network_are_not_used() {
        let cutoffs = by_level(&[100, 1000, u64::MAX], 4);
        assert_eq!([1, 100, 101, 1000, 1001].map(|len| cutoffs.level(len)), [3, 3, 2, 2, 1]);
    }
}
