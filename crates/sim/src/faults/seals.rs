//! Keys and wall clocks of the hosts of a plan whose packets are sealed.
//!
//! | what | is |
//! |---|---|
//! | the group's keys | one, or one after the other: each is used for [`SealPlan::every_ns`] |
//! | a host's file | the key of its time, the one before and the next; taken up to half of that time before or after the key's begin |
//! | a server that lost its keys | has others under the numbers of the group's, or the group's of a time before the run; where keys rotate and a reset secret tells of it, every other time those before the one of its time |
//! | the reset secret | three of four groups have one, all of whose hosts know it for all the run |
//! | a wall clock | off by what the plan says of its host, and by active [`FaultKind::WallClock`] |

use std::sync::Arc;

use tailcut_proto::node::{Node, Time};
use tailcut_proto::sealed::{EpochKey, HopKey, Keys, Reader, Role, Sealing, Secret};

use super::host::Sabotage;
use super::plan::{FaultKind, Host, Plan, SealPlan};
use super::recorder::mixed;
use super::run::Run;

impl SealPlan {
    /// The number of a client.
    pub(super) fn number(&self, client: usize) -> u32 {
        FIRST_NUMBER + if self.is_shared { client as u32 / 2 } else { client as u32 }
    }

    /// Time at which a host takes the file of which key `index` is the middle.
    fn taken_at(&self, seed: u64, place: usize, index: u64) -> Time {
        let Some(every_ns) = self.every_ns else { return 0 };
        let word = mixed(seed ^ (place as u64) << 32 ^ index);
        (index * every_ns + word % every_ns).saturating_sub(every_ns / 2)
    }

    /// The key of the group with this index.
    fn key(&self, seed: u64, index: u64) -> EpochKey {
        let from_ns = self.every_ns.map_or(0, |every_ns| index * every_ns);
        let from_ms = match index {
            0 => WALL_MS - BEFORE_MS,
            _ => WALL_MS + from_ns / 1_000_000,
        };
        let words = [1, 2, 3, 4].map(|part| mixed(seed ^ index << 8 ^ part << 40).to_be_bytes());
        let secret = Secret::new(words.concat().try_into().expect("four words are 32 bytes"));
        EpochKey { epoch: index as u8, from_ms, secret, hop: HopKey::default() }
    }

    fn keys(&self, seed: u64, epochs: Vec<EpochKey>) -> Keys {
        Keys {
            role: Role::Server,
            group: "faults".to_owned(),
            cipher: self.cipher,
            reset: self.reset_secret(seed).map(HopKey::new),
            epochs,
        }
    }

    /// The group's reset secret, by which hosts tell of keys that they have not.
    pub(super) fn reset_secret(&self, seed: u64) -> Option<[u8; 16]> {
        let words = [5, 6].map(|part| mixed(seed ^ part << 40).to_be_bytes());
        self.has_reset.then(|| words.concat().try_into().expect("two words are 16 bytes"))
    }

    /// The file of which a key is the middle.
    fn file(&self, seed: u64, index: u64) -> Keys {
        let last = if self.every_ns.is_some() { index + 1 } else { 0 };
        self.keys(
            seed,
            (index.saturating_sub(1)..=last).map(|index| self.key(seed, index)).collect(),
        )
    }

    /// The keys of a server that has lost those from this one on, if that is what it has lost.
    fn before(&self, seed: u64, index: u64) -> Option<Keys> {
        let is_behind = self.has_reset && self.every_ns.is_some() && mixed(seed ^ index) & 1 == 0;
        let keys = self.file(seed, index.checked_sub(1).filter(|_| is_behind)?);
        let epochs = keys.epochs.iter().filter(|key| key.epoch != index as u8).cloned();
        Some(Keys { epochs: epochs.collect(), ..keys })
    }

    /// The keys of a server that has lost the group's.
    fn lost(&self, seed: u64, index: u64, is_old: bool) -> Keys {
        let mut keys = self.file(if is_old { seed } else { !seed }, index);
        if is_old {
            for (age, key) in (1..).zip(keys.epochs.iter_mut().rev()) {
                key.epoch = 0_u8.wrapping_sub(age);
                key.from_ms = WALL_MS - BEFORE_MS - u64::from(age) * 1_000;
                key.secret = Secret::new([age; 32]);
            }
        }
        keys
    }
}

impl Plan {
    /// The indices of the files that a host takes in a run, and when; the first it has at the
    /// start.
    pub(super) fn files(&self, host: Host) -> impl Iterator<Item = (Time, u64)> {
        let (seed, place) = (self.seed, self.place(host));
        let rotating = self.seal.filter(|seal| seal.every_ns.is_some());
        let last = rotating.map_or(0, |seal| self.last_key(&seal));
        (1..=last).filter_map(move |index| Some((rotating?.taken_at(seed, place, index), index)))
    }

    /// The index of the last key that begins in a run.
    fn last_key(&self, seal: &SealPlan) -> u64 {
        let every_ns = seal.every_ns.unwrap_or(u64::MAX).max(EVERY_NS_MIN);
        ((self.quiet_at() + AFTER_NS) / every_ns).min(KEYS_MAX)
    }

    /// Reads what is sealed in a run.
    pub(super) fn reader(&self) -> Option<Reader> {
        let seal = self.seal?;
        let last = self.last_key(&seal) + 1;
        let epochs = (0..=last).map(|index| seal.key(self.seed, index)).collect();
        Reader::new(seal.keys(self.seed, epochs))
    }

    /// Offset of a host's wall clock in all the run, ms.
    pub(super) fn off_ms(&self, host: Host) -> i64 {
        match host {
            Host::Router | Host::Standby => self.router.as_ref().map_or(0, |it| it.off_ms),
            Host::Server(index) => self.servers[index].off_ms,
            Host::Client(index) => self.clients[index].off_ms,
        }
    }

    /// True if the wall clocks of two hosts are so far apart that sessions of one are nothing to
    /// the other.
    pub(super) fn are_apart(&self, one: Host, other: Host) -> bool {
        self.off_ms(one).abs_diff(self.off_ms(other)) >= APART_MS
    }

    /// True if two hosts lose each other when keys rotate: by their clocks not the same keys are in
    /// use.
    pub(super) fn lose_each_other(&self, one: Host, other: Host) -> bool {
        self.seal.is_some_and(|seal| seal.every_ns.is_some()) && self.are_apart(one, other)
    }
}

impl Run<'_> {
    /// The keys and the clock of a host that starts now; `None` where packets are open.
    pub(super) fn sealing(&self, host: Host, local: Time) -> Option<Sealing> {
        let seal = self.plan.seal?;
        let (now, seed) = (self.network.now(), self.plan.seed);
        let index = self.plan.files(host).take_while(|&(at, _)| at <= now).last();
        let index = index.map_or(0, |(_, index)| index);
        let lost = self.lost_keys(host);
        let before = seal.before(seed, index).filter(|_| lost == Some(true));
        if let Host::Server(server) = host {
            let has_some = lost.is_none() || before.is_some();
            let mut watch = self.watch.borrow_mut();
            watch.sealed.iter_mut().for_each(|it| it.note_keys(server, has_some));
        }
        let is_denied = self.has(Sabotage::KeysAreDenied) && matches!(host, Host::Server(_));
        let keys = match lost {
            _ if is_denied => seal.lost(seed, index, true),
            Some(is_old) if !self.has(Sabotage::LostKeysAreKept) => {
                before.unwrap_or_else(|| seal.lost(seed, index, is_old))
            }
            _ => seal.file(seed, index),
        };
        let keys = keys.for_role(self.role(host)).expect("the group's keys are a server's");
        let clock_ns = (self.wall_ns(host) as i128 - i128::from(local)).max(0) as u64;
        let mut sealing = Sealing::new(Arc::new(keys), clock_ns);
        let keeps_name = match host {
            Host::Server(_) => self.has(Sabotage::StartIsLost),
            Host::Router | Host::Standby => self.has(Sabotage::NameIsKept),
            Host::Client(_) => false,
        };
        // Both ends of a stream call.
        sealing.calls_back = !self.plan.streams.is_empty();
        sealing.name = keeps_name.then(|| mixed(self.plan.place(host) as u64));
        if self.has(Sabotage::ClocksAreTrusted) && matches!(host, Host::Server(_)) {
            sealing.clock_tolerance_ms = u64::from(u32::MAX);
        }
        Some(sealing)
    }

    /// The seal of an endpoint that starts now.
    pub(super) fn seal_of(&self, host: Host, local: Time) -> Option<Sealing> {
        let is_open = self.has(Sabotage::SealIsLeftOut) && matches!(host, Host::Server(_));
        self.sealing(host, local).filter(|_| !is_open)
    }

    /// Time at which an endpoint that starts now believes that it starts.
    pub(super) fn started_at(&self, host: Host, local: Time) -> Time {
        let is_wrong = self.has(Sabotage::StartIsLost) && matches!(host, Host::Server(_));
        if is_wrong { 0 } else { local }
    }

    /// A host takes its next file.
    pub(super) fn renew_keys(&mut self, host: Host, index: u64) {
        let Some(seal) = self.plan.seal else { return };
        let stays = self.has(Sabotage::KeysStayOld) || self.has(Sabotage::KeysAreDenied);
        let stays = stays && matches!(host, Host::Server(_));
        if self.is_down(host) || self.lost_keys(host).is_some() || stays {
            return;
        }
        let keys = seal.file(self.plan.seed, index).for_role(self.role(host));
        let place = self.plan.place(host);
        let local = self.network.local(place);
        let node = &mut self.network.node_mut(place).node;
        let taken = keys.map(|keys| node.update_keys(local, &keys));
        assert_eq!(taken, Some(Ok(())), "{host} refuses the next keys of its group");
    }

    /// Another process with the keys that the active faults leave takes the place of a server.
    pub(super) fn replace_for_keys(&mut self, host: Host, now: Time) {
        if self.is_down(host) {
            return;
        }
        self.crashed(host, now);
        let place = self.plan.place(host);
        let station = self.station(host);
        self.network.replace(place, station);
        self.network.flush(place);
    }

    /// A host reads its wall clock again.
    pub(super) fn read_wall_clock(&mut self, host: Host) {
        if self.plan.seal.is_some() && !self.is_down(host) {
            let place = self.plan.place(host);
            let (local, wall_ns) = (self.network.local(place), self.wall_ns(host));
            self.network.node_mut(place).node.handle_wall_clock(local, wall_ns);
        }
    }

    /// The wall clock of a host now.
    fn wall_ns(&self, host: Host) -> u64 {
        let set = self.active().filter_map(|kind| match kind {
            FaultKind::WallClock { host: set, by_ms } if set == host => Some(by_ms),
            _ => None,
        });
        let off_ms = self.plan.off_ms(host) + set.sum::<i64>();
        (WALL_MS * 1_000_000 + self.network.now()).saturating_add_signed(off_ms * 1_000_000)
    }

    fn role(&self, host: Host) -> Role {
        match host {
            Host::Router | Host::Standby => Role::Router,
            Host::Server(_) => Role::Server,
            Host::Client(client) => Role::Client(self.plan.seal.unwrap_or_default().number(client)),
        }
    }

    /// Loss of a server's keys: true if it has old ones; `None` where none is lost.
    fn lost_keys(&self, host: Host) -> Option<bool> {
        self.active().find_map(|kind| match kind {
            FaultKind::LostKeys { host: lost, is_old } if lost == host => Some(is_old),
            _ => None,
        })
    }

    fn has(&self, sabotage: Sabotage) -> bool {
        self.options.sabotage == Some(sabotage)
    }
}

/// Unix time at which runs begin, ms.
const WALL_MS: u64 = 1_764_086_400_000;

/// Time from the beginning of the first key until the run, ms: a clock that is behind by a day
/// tells it too.
const BEFORE_MS: u64 = 2 * 86_400_000;

/// Clocks that are off by so much are not those of hosts that keep time, ms. No run lasts so long.
const APART_MS: u64 = 3_600_000;

/// Least time for which a key is used.
const EVERY_NS_MIN: u64 = 20_000_000;

/// Keys rotate until all must be quiet.
const AFTER_NS: u64 = 2_000_000_000;

/// Most keys of a run, each of which has a number of its own.
const KEYS_MAX: u64 = 240;

/// The number of the first client.
const FIRST_NUMBER: u32 = 17;
