//! Shares of what all streams may have: places, and windows beyond the least that every stream has.
//!
//! | of a limit is taken | a host, an address of IPv4 or a /64 of IPv6, may take |
//! |---|---|
//! | half or less | what it likes |
//! | more | while it has at most [`SHARE`] times what is left |
//!
//! So one host has at most three quarters, whatever its ports, and there is always something for
//! the next.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Streams;
use super::config::Config;
use crate::address::share_of;
use crate::peer::crowd::{SHARE, may_have_more};
use crate::rpc::Rpc;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::slab::SlotId;

/// A direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Towards here.
    In,
    /// Away from here.
    Out,
}

/// Holdings of the hosts.
#[derive(Debug)]
pub(super) struct Shares {
    /// Holdings of each host that has any.
    by_host: HashMap<u64, Part, KeyedState>,
    /// Bytes of windows beyond the least, of all streams, by [`Way`].
    grown: [usize; 2],
}

/// Holdings of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Streams that have a place.
    streams: usize,
    /// Bytes of their windows beyond the least, by [`Way`].
    grown: [usize; 2],
}

impl Shares {
    pub(super) fn new(seed: u64) -> Self {
        Self { by_host: HashMap::with_hasher(KeyedState::with_seed(seed)), grown: [0; 2] }
    }

    /// True if a host may have one more stream where `taken` are open.
    pub(super) fn has_place(&self, ip: IpAddr, taken: usize, config: &Config) -> bool {
        let free = config.streams_max.saturating_sub(taken);
        let held = || self.by_host.get(&share_of(ip)).map_or(0, |part| part.streams);
        free > 0 && (taken < config.streams_max / 2 || may_have_more(held(), free))
    }

    pub(super) fn begin(&mut self, ip: IpAddr) {
        self.by_host.entry(share_of(ip)).or_default().streams += 1;
    }

    /// A stream ends whose windows had grown by so much.
    pub(super) fn end(&mut self, ip: IpAddr, grown: [usize; 2]) {
        self.shrink(ip, grown);
        let host = share_of(ip);
        if let Some(part) = self.by_host.get_mut(&host) {
            part.streams -= 1;
            if part.streams == 0 {
                self.by_host.remove(&host);
            }
        }
    }

    /// Bytes of windows beyond the least, of all streams.
    pub(super) fn grown(&self, way: Way) -> usize {
        self.grown[way as usize]
    }

    /// Bytes of `left` that a host may take for a window, where all windows may grow by `max`.
    fn spare(&self, ip: IpAddr, way: Way, (left, max): (usize, usize)) -> usize {
        let held = self.by_host.get(&share_of(ip)).map_or(0, |part| part.grown[way as usize]);
        let below_half = (max / 2).saturating_sub(self.grown(way));
        let of_share = (SHARE * left).saturating_sub(held) / (SHARE + 1);
        left.min(below_half.max(of_share))
    }

    fn grow(&mut self, ip: IpAddr, way: Way, bytes: usize) {
        self.grown[way as usize] += bytes;
        self.by_host.entry(share_of(ip)).or_default().grown[way as usize] += bytes;
    }

    fn shrink(&mut self, ip: IpAddr, bytes: [usize; 2]) {
        let part = self.by_host.get_mut(&share_of(ip)).into_iter();
        for grown in std::iter::once(&mut self.grown).chain(part.map(|part| &mut part.grown)) {
            grown.iter_mut().zip(bytes).for_each(|(grown, bytes)| *grown -= bytes);
        }
    }
}

impl<E: Rpc> Streams<E> {
    /// Streams that have a place for good.
    pub(super) fn open_count(&self) -> usize {
        self.holdings.streams - self.holdings.half_open
    }

    /// True if there are windows for one more stream, of the least length.
    pub(super) fn has_windows(&self) -> bool {
        let least = (self.open_count() + 1).saturating_mul(self.config.window_min);
        let grown = self.shares.grown(Way::In).max(self.shares.grown(Way::Out));
        least.saturating_add(grown) <= self.config.windows_bytes_max
    }

    /// Sum of the windows of a direction.
    pub(super) fn windows_bytes(&self, way: Way) -> usize {
        self.open_count() * self.config.window_min + self.shares.grown(way)
    }

    /// Gives a stream a longer window, four times as long where there is room; tells whether.
    pub(super) fn widen(&mut self, index: SlotId, way: Way) -> bool {
        let Config { window_max, window_min, windows_bytes_max, streams_max, .. } = self.config;
        let slot = &self.slots[index];
        let window = slot.window(way);
        let wanted = (window.saturating_mul(GROWTH - 1)).min(window_max - window);
        if wanted == 0 {
            return false;
        }
        // Streams to come are to have windows too.
        let kept = streams_max.saturating_mul(window_min).min(windows_bytes_max / 2);
        let max = windows_bytes_max - kept;
        let left = max
            .saturating_sub(self.shares.grown(way))
            .min(windows_bytes_max.saturating_sub(self.windows_bytes(way)));
        let ip = slot.peer.ip();
        let more = wanted.min(self.shares.spare(ip, way, (left, max)));
        if more == 0 {
            self.metrics.windows_denied += 1;
            return false;
        }
        self.shares.grow(ip, way, more);
        self.slots[index].windows[way as usize] += more;
        true
    }

    /// Takes back the room to write of a stream that has not used it for long. What its peer was
    /// told that it may send, nobody can take back.
    pub(super) fn narrow(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        let more = slot.window(Way::Out) - self.config.window_min;
        if slot.out.is_empty() && more > 0 {
            slot.windows[Way::Out as usize] -= more;
            let ip = slot.peer.ip();
            self.shares.shrink(ip, [0, more]);
        }
    }

    /// Releases the share of a stream that has had a place.
    pub(super) fn give_back(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        let grown = slot.windows.map(|window| window - self.config.window_min);
        self.shares.end(slot.peer.ip(), grown);
    }
}

/// A window becomes so many times as long whenever it was all used: from the least of 16 KiB to the
/// most of 1 MiB in three round trips.
const GROWTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn one_host_leaves_places_to_others() {
        let config = Config { streams_max: 800, ..Config::default() };
        let mut shares = Shares::new(1);
        let mut taken = 0;
        let mut flood = |ip| {
            let before = taken;
            while shares.has_place(ip, taken, &config) {
                shares.begin(ip);
                taken += 1;
            }
            taken - before
        };
        // As long as it has at most three times what is left.
        assert_eq!(flood(host(1)), 601);
        assert_eq!(flood(host(2)), 150);
        assert_eq!(flood(host(1)), 0);
        assert!(flood(host(3)) > 30);
        for _ in 0..601 {
            shares.end(host(1), [0; 2]);
        }
        assert!(!shares.by_host.contains_key(&share_of(host(1))));
    }

    #[test]
    fn one_host_leaves_windows_to_others() {
        let mut shares = Shares::new(1);
        let mut flood = |ip, way| {
            let before = shares.grown(way);
            while let more @ 1.. = shares.spare(ip, way, (8000 - shares.grown(way), 8000)) {
                shares.grow(ip, way, more.min(10));
            }
            shares.grown(way) - before
        };
        assert_eq!((flood(host(1), Way::In), flood(host(2), Way::In)), (6000, 1500));
        assert_eq!(flood(host(1), Way::Out), 6000);
        shares.begin(host(1));
        shares.end(host(1), [6000, 6000]);
        assert_eq!(shares.grown, [1500, 0]);
    }

    #[test]
    fn half_of_the_places_are_for_whoever_comes() {
        let config = Config { streams_max: 8, ..Config::default() };
        let mut shares = Shares::new(1);
        (0..16).for_each(|_| shares.begin(host(1)));
        let has_place = |ip, taken| shares.has_place(ip, taken, &config);
        assert!(has_place(host(1), 3), "it is the fourth of eight");
        assert!(!has_place(host(1), 4) && has_place(host(2), 4));
        assert!(has_place(host(2), 7) && !has_place(host(2), 8), "there is none left");
    }

    #[test]
    fn a_host_has_its_part_until_its_last_stream_ends() {
        let mut shares = Shares::new(1);
        (0..2).for_each(|_| shares.begin(host(1)));
        shares.grow(host(1), Way::In, 30);
        shares.end(host(1), [10, 0]);
        let part = shares.by_host.get(&share_of(host(1))).expect("one is left");
        assert_eq!((part.streams, part.grown, shares.grown(Way::In)), (1, [20, 0], 20));
        shares.end(host(1), [20, 0]);
        assert!(shares.by_host.is_empty());
    }

    #[test]
    fn windows_grow_to_half_for_one_host_and_then_by_shares() {
        let mut shares = Shares::new(1);
        let spare = |shares: &Shares, left| shares.spare(host(1), Way::In, (left, 1001));
        assert_eq!(spare(&shares, 1001), 750, "three quarters");
        assert_eq!(spare(&shares, 7), 7, "no more than is left");
        shares.grow(host(1), Way::In, 480);
        assert_eq!(spare(&shares, 100), 20, "up to the half, whatever is left");
        // What makes it three times what is left then: (3 * 521 - 480) / 4.
        assert_eq!(spare(&shares, 521), 270);
        shares.grow(host(1), Way::In, 270);
        assert_eq!(spare(&shares, 251), 0);
        assert_eq!(shares.spare(host(2), Way::In, (251, 1001)), 188);
    }
}
