//! Beginning of a client's session, and the time until which calls begin in it.

use super::keys::{CLOCK_TOLERANCE_MS, ClientSecret, EpochKey, Keys, TICK_MS, Transport, carried};
use super::wall_clock::WallClock;
use crate::node::Time;

/// The beginning of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    /// Epoch of its keys.
    pub(super) epoch: u8,
    /// In ticks of the epoch.
    pub(super) ticks: u32,
    /// The wall clock then.
    clock: WallClock,
    /// The microsecond before that, by the clock of the node.
    pub(super) zero_us: u64,
}

impl Beginning {
    /// A session begins now, under the key of this place.
    pub(super) fn new((now, clock): (Time, WallClock), keys: &Keys, at: usize) -> Self {
        let ticks = clock.ms(now).saturating_sub(keys.epochs[at].from_ms) / TICK_MS;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let zero_us = (now / 1_000).saturating_sub(1);
        Self { epoch: keys.epochs[at].epoch, ticks, clock, zero_us }
    }

    /// True if the next call should begin another one, where `current` is the epoch by now: this
    /// one has lasted for long, or is told by a clock that is wrong, if the clock has been set
    /// since.
    #[inline]
    pub(super) fn is_over(&self, (now, clock): (Time, WallClock), current: u8) -> bool {
        self.epoch != current
            || self.age_us(now) >= SESSION_US_MAX
            || self.clock.is_behind(clock, CLOCK_TOLERANCE_MS)
            || clock.is_behind(self.clock, CLOCK_TOLERANCE_MS)
    }

    /// Microseconds since it began, at least 1.
    pub(super) fn age_us(&self, now: Time) -> u64 {
        (now / 1_000).saturating_sub(self.zero_us).max(1)
    }
}

/// Secrets that are derived from a client's keys, by place of the epoch.
pub(super) fn secrets_of(keys: &Keys, transport: Transport) -> Vec<ClientSecret> {
    let make = |key: &EpochKey| ClientSecret::new(&key.secret, (keys.cipher, transport));
    keys.epochs.iter().map(make).collect()
}

/// Derives the secrets again for keys that take the place of others.
pub(super) fn renewed_secrets(
    secrets: &mut Vec<ClientSecret>,
    (old, new): (&Keys, &Keys),
    transport: Transport,
) {
    let make = |key: &EpochKey| ClientSecret::new(&key.secret, (new.cipher, transport));
    *secrets = carried((old, std::mem::take(secrets)), new, make);
}

/// Time in which calls begin in one session: what a packet of R2P2 says of the time since it began
/// has 32 bits, which last for 71 minutes, and calls that have begun in it may last for an hour
/// more.
const SESSION_US_MAX: u64 = 10 * 60 * 1_000_000;
