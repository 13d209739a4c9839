//! Timestamps of packets: the kernel's own, and the network interface's.
//!
//! A receive stamp comes with the bytes. A transmit stamp comes later, on the socket's error queue,
//! under a number that the kernel gave the send; a [`Stamping`] socket stamps only the sends that
//! its owner marks, since each transmit stamp costs as much as a third of a datagram. What a
//! receive stamp costs (0.13 us) is paid for each packet.
//!
//! | number | counts |
//! |---|---|
//! | of a connection's write | bytes written since the connection opened; the write's last byte is its number |
//! | of a datagram | the marked datagrams of its socket, from 0 |
//! | of an R2P2 datagram | [`tailcut_proto::node::Transmit::token`] as its owner chose it |
//!
//! Who holds stamps must not subtract one clock's from another's: the kernel's are CLOCK_REALTIME,
//! the interface's its own, and the time of [`crate::clock`] is CLOCK_MONOTONIC.
//!
//! Invariants: a send's stamps are given with the very range of numbers that the send carried; what
//! is remembered of sends is bounded.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::sys;

/// Stamps that a socket asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamping {
    /// None, at no cost.
    #[default]
    Off,
    /// The kernel's.
    Kernel,
    /// The kernel's and the interface's. That a socket takes this says nothing: only a probe tells
    /// whether stamps arrive.
    Hardware,
}

impl Stamping {
    /// Receive stamps, and how transmit stamps are reported.
    pub(crate) fn socket_flags(self) -> u32 {
        let software = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        let hardware = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        let options = libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY
            | libc::SOF_TIMESTAMPING_OPT_CMSG;
        match self {
            Self::Off => 0,
            Self::Kernel => software | options,
            Self::Hardware => software | hardware | options | libc::SOF_TIMESTAMPING_OPT_TX_SWHW,
        }
    }

    /// The flags of a marked send.
    pub(crate) fn send_flags(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Kernel => libc::SOF_TIMESTAMPING_TX_SOFTWARE,
            Self::Hardware => {
                libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_TX_HARDWARE
            }
        }
    }
}

/// Times of a packet on its way, by each clock that has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// By the kernel: CLOCK_REALTIME, ns.
    pub kernel_ns: Option<u64>,
    /// By the interface: a clock of its own, ns.
    pub hardware_ns: Option<u64>,
}

/// A stamp of a marked send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentStamp {
    /// The lowest number that the send carried.
    pub first: u64,
    /// The highest one. The same as the lowest for a datagram.
    pub last: u64,
    /// Times at which it left. The kernel's stamp and the interface's come one by one. A send that
    /// is stamped twice by one clock was retransmitted.
    pub stamps: Stamps,
}

/// Source of stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StampSource {
    /// The kernel, and the interface through it.
    #[default]
    Kernel,
    /// The kernel, and an interface that is made up from the kernel's stamps: to test without one.
    Fake(FakeInterface),
}

/// Stamps of a socket, and their source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampConfig {
    /// Stamps that are asked for. Default off.
    pub stamping: Stamping,
    /// From where. Default the kernel.
    pub source: StampSource,
}

/// An interface that stamps by a clock of its own, and loses and delays transmit stamps as
/// interfaces do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeInterface {
    /// Its clock minus the kernel's when that shows 0, ns.
    pub offset_ns: i64,
    /// The drift of its clock against the kernel's, parts per billion.
    pub drift_ppb: i32,
    /// Transmit stamps lost, of 1,000.
    pub lost_per_mille: u16,
    /// Transmit stamps delayed, of 1,000 that are not lost.
    pub late_per_mille: u16,
    /// Later transmit stamps of the same socket that overtake a delayed one.
    pub late_by: u16,
    /// Seed of the draws by which stamps are lost and delayed.
    pub seed: u64,
}

impl FakeInterface {
    /// Its stamp of what the kernel stamped.
    fn stamp(&self, kernel_ns: u64) -> u64 {
        let drift_ns = i128::from(kernel_ns) * i128::from(self.drift_ppb) / 1_000_000_000;
        (i128::from(kernel_ns) + drift_ns + i128::from(self.offset_ns))
            .clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Marked sends of a socket, and the stamps that have come for them.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Stamps that are wanted, and their source.
    config: StampConfig,
    /// Marked sends by ascending number, the latest `len_max`.
    sends: VecDeque<Send>,
    /// Sends, and stamps, that are remembered.
    len_max: usize,
    /// Stamps that nobody has polled yet, at most `len_max`.
    arrived: VecDeque<SentStamp>,
    /// Stamps of the fake interface that are late, with how many overtake each.
    delayed: VecDeque<(u16, SentStamp)>,
    /// State of the fake interface's draws.
    draws: u64,
    /// Marked datagrams so far.
    datagrams: u64,
    /// A send later than this one has no stamp yet.
    stamped: Option<u64>,
}

/// A marked send.
#[derive(Clone, Copy, Debug)]
struct Send {
    /// The number whose low half the kernel reports.
    number: u64,
    /// The lowest number that it carried, as its owner counts.
    first: u64,
    /// The highest.
    last: u64,
}

impl Ledger {
    /// An empty one that remembers that many sends.
    pub(crate) fn new(config: StampConfig, len_max: usize) -> Self {
        let draws = match config.source {
            StampSource::Fake(interface) => interface.seed,
            StampSource::Kernel => 0,
        };
        let (sends, arrived) = (VecDeque::with_capacity(len_max), VecDeque::with_capacity(len_max));
        Self {
            config,
            sends,
            len_max,
            arrived,
            delayed: VecDeque::new(),
            draws,
            datagrams: 0,
            stamped: None,
        }
    }

    /// The flags of a marked send.
    #[inline]
    pub(crate) fn send_flags(&self) -> u32 {
        self.asked().send_flags()
    }

    /// Asks the socket for stamps. A connection must be open by then, and nothing written to it.
    pub(crate) fn enable(&self, fd: BorrowedFd<'_>, transport: Transport) -> std::io::Result<()> {
        let flags = self.asked().socket_flags();
        let by_write = libc::SOF_TIMESTAMPING_OPT_ID_TCP;
        // Before 6.2 the kernel knows no OPT_ID_TCP; with nothing unacknowledged it counts from the
        // same byte without.
        if transport == Transport::Connection && sys::set_timestamping(fd, flags | by_write).is_ok()
        {
            return Ok(());
        }
        sys::set_timestamping(fd, flags)
    }

    /// Lets the socket stamp and count on, but hand nothing over, which costs each receive less.
    /// Datagrams only.
    pub(crate) fn pause(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        let reports = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        sys::set_timestamping(fd, self.asked().socket_flags() & !reports)
    }

    /// Undoes [`Ledger::pause`].
    pub(crate) fn resume(&self, fd: BorrowedFd<'_>) -> std::io::Result<()> {
        self.enable(fd, Transport::Datagrams)
    }

    /// The stamps that the socket is asked for.
    fn asked(&self) -> Stamping {
        match self.config.source {
            StampSource::Kernel => self.config.stamping,
            StampSource::Fake(_) => Stamping::Kernel,
        }
    }

    /// Remembers a marked send that the kernel has taken. Numbers ascend.
    #[inline]
    pub(crate) fn handle_send(&mut self, number: u64, (first, last): (u64, u64)) {
        if self.sends.len() >= self.len_max {
            self.sends.pop_front();
        }
        self.sends.push_back(Send { number, first, last });
    }

    /// Remembers a marked datagram that the kernel has taken, under what its owner calls it: the
    /// kernel counts them.
    #[inline]
    pub(crate) fn handle_datagram(&mut self, tag: u64) {
        self.handle_send(self.datagrams, (tag, tag));
        self.datagrams += 1;
    }

    /// True while a stamp may still come: an error queue that is polled for nothing costs a system
    /// call.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        let newest = self.sends.back().map(|send| send.number);
        newest > self.stamped || (self.config.stamping == Stamping::Hardware && newest.is_some())
    }

    /// Takes a stamp from the error queue. One of a send that is no longer remembered is dropped.
    pub(crate) fn handle_stamp(&mut self, number: u32, stamps: Stamps) {
        let Some(newest) = self.sends.back() else { return };
        let number =
            newest.number.wrapping_sub(u64::from((newest.number as u32).wrapping_sub(number)));
        let Ok(index) = self.sends.binary_search_by_key(&number, |send| send.number) else {
            return;
        };
        let Send { first, last, .. } = self.sends[index];
        self.stamped = self.stamped.max(Some(number));
        let stamp = SentStamp { first, last, stamps };
        self.push(stamp);
        if let (StampSource::Fake(interface), Some(kernel_ns)) =
            (self.config.source, stamps.kernel_ns)
        {
            let stamps = Stamps { kernel_ns: None, hardware_ns: Some(interface.stamp(kernel_ns)) };
            self.pass_fake(&interface, SentStamp { stamps, ..stamp });
        }
    }

    /// The next stamp that has come.
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<SentStamp> {
        self.arrived.pop_front()
    }

    /// The stamps of received bytes, as the source has them.
    #[inline]
    pub(crate) fn received(&self, stamps: Stamps) -> Stamps {
        match (self.config.source, stamps.kernel_ns) {
            (StampSource::Fake(interface), Some(kernel_ns)) => {
                Stamps { hardware_ns: Some(interface.stamp(kernel_ns)), ..stamps }
            }
            _ => stamps,
        }
    }

    /// A stamp of the fake interface: lost, late, or now; and those that it makes due.
    fn pass_fake(&mut self, interface: &FakeInterface, stamp: SentStamp) {
        self.delayed
            .iter_mut()
            .for_each(|(overtaken_by, _)| *overtaken_by = overtaken_by.saturating_sub(1));
        if self.draw(interface.lost_per_mille) {
            // Never comes.
        } else if self.draw(interface.late_per_mille) && self.delayed.len() < self.len_max {
            self.delayed.push_back((interface.late_by, stamp));
        } else {
            self.push(stamp);
        }
        while let Some(index) = self.delayed.iter().position(|(overtaken_by, _)| *overtaken_by == 0)
        {
            let due = self.delayed.remove(index);
            due.into_iter().for_each(|(_, stamp)| self.push(stamp));
        }
    }

    /// One draw of a linear congruential generator (Knuth's MMIX): enough to pick victims.
    fn draw(&mut self, per_mille: u16) -> bool {
        self.draws = self
            .draws
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.draws >> 33) % 1_000 < u64::from(per_mille)
    }

    fn push(&mut self, stamp: SentStamp) {
        if self.arrived.len() < self.len_max {
            self.arrived.push_back(stamp);
        }
    }
}

/// The kind of a socket's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A stream.
    Connection,
    /// Datagrams.
    Datagrams,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(source: StampSource) -> Ledger {
        Ledger::new(StampConfig { stamping: Stamping::Kernel, source }, 8)
    }

    fn at(kernel_ns: u64) -> Stamps {
        Stamps { kernel_ns: Some(kernel_ns), hardware_ns: None }
    }

    fn drain(ledger: &mut Ledger) -> Vec<(u64, u64, Option<u64>, Option<u64>)> {
        let stamps = std::iter::from_fn(|| ledger.poll());
        stamps
            .map(|stamp| {
                (stamp.first, stamp.last, stamp.stamps.kernel_ns, stamp.stamps.hardware_ns)
            })
            .collect()
    }

    #[test]
    fn a_stamp_has_the_range_of_its_send() {
        let mut ledger = ledger(StampSource::Kernel);
        ledger.handle_send(99, (0, 99));
        ledger.handle_send(299, (200, 299));
        assert!(ledger.is_waiting());
        ledger.handle_stamp(299, at(7));
        assert!(!ledger.is_waiting());
        ledger.handle_stamp(99, at(5));
        assert_eq!(drain(&mut ledger), [(200, 299, Some(7), None), (0, 99, Some(5), None)]);
    }

    #[test]
    fn numbers_wrap_after_four_billion() {
        let mut ledger = ledger(StampSource::Kernel);
        let wrap = 1_u64 << 32;
        for number in [wrap - 2, wrap + 3] {
            ledger.handle_send(number, (number, number));
        }
        ledger.handle_stamp(3, at(2));
        ledger.handle_stamp(u32::MAX - 1, at(1));
        assert_eq!(
            drain(&mut ledger),
            [(wrap + 3, wrap + 3, Some(2), None), (wrap - 2, wrap - 2, Some(1), None)]
        );
    }

    #[test]
    fn a_number_that_no_send_had_is_dropped() {
        let mut ledger = ledger(StampSource::Kernel);
        ledger.handle_stamp(0, at(1));
        ledger.handle_send(99, (0, 99));
        ledger.handle_stamp(98, at(1));
        ledger.handle_stamp(100, at(1));
        assert_eq!(drain(&mut ledger), []);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut ledger = ledger(StampSource::Kernel);
        (0..9).for_each(|number| ledger.handle_send(number, (number, number)));
        ledger.handle_stamp(0, at(1));
        (0..100).for_each(|_| ledger.handle_stamp(8, at(1)));
        assert_eq!(drain(&mut ledger), [(8, 8, Some(1), None); 8]);
    }

    #[test]
    fn a_fake_interface_has_a_clock_of_its_own() {
        let interface = FakeInterface { offset_ns: -5, drift_ppb: 1_000, ..NOTHING_LOST };
        let mut ledger = ledger(StampSource::Fake(interface));
        ledger.handle_send(0, (0, 0));
        ledger.handle_stamp(0, at(1_000_000));
        assert_eq!(
            drain(&mut ledger),
            [(0, 0, Some(1_000_000), None), (0, 0, None, Some(999_996))]
        );
        let received = Stamps { kernel_ns: Some(2_000_000), hardware_ns: Some(1_999_997) };
        assert_eq!(ledger.received(at(2_000_000)), received);
    }

    #[test]
    fn a_fake_interface_delays() {
        let interface = FakeInterface { late_per_mille: 1_000, late_by: 2, ..NOTHING_LOST };
        let mut ledger = ledger(StampSource::Fake(interface));
        for number in 0..3 {
            ledger.handle_send(number, (number, number));
            ledger.handle_stamp(number as u32, at(number));
        }
        let hardware: Vec<u64> = drain(&mut ledger).iter().filter_map(|stamp| stamp.3).collect();
        assert_eq!(hardware, [0]);
    }

    #[test]
    fn a_fake_interface_loses_about_as_many_as_asked() {
        let interface = FakeInterface { lost_per_mille: 500, ..NOTHING_LOST };
        let mut ledger = ledger(StampSource::Fake(interface));
        let mut arrived = 0;
        for number in 0..10_000 {
            ledger.handle_send(number, (number, number));
            ledger.handle_stamp(number as u32, at(number));
            arrived += drain(&mut ledger).iter().filter(|stamp| stamp.3.is_some()).count();
        }
        // Four standard deviations of 10,000 fair coins.
        assert!((4_800..=5_200).contains(&arrived), "{arrived}");
    }

    const NOTHING_LOST: FakeInterface = FakeInterface {
        offset_ns: 0,
        drift_ppb: 0,
        lost_per_mille: 0,
        late_per_mille: 0,
        late_by: 0,
        seed: 1,
    };
}
