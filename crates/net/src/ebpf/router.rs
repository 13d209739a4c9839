//! The XDP router: `ebpf/router.bpf.c`, which places what it can before the kernel's network stack,
//! and the memory that it shares with the user-space router.
//!
//! | | |
//! |---|---|
//! | a request of one packet, while a server has a place | is placed by the program |
//! | any other packet for the router that a router can use | goes up to its socket, counted by reason |
//! | what is malformed, or comes from whom it cannot come | is dropped, counted by reason |
//! | the program and its memory | where they are pinned, outlive this process until [`XdpRouter::detach`] |
//!
//! Invariant: an entry is whole before its address is known to the program, and until it is not any
//! more.

mod layout;
mod seal;

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use tailcut_proto::node::Time;
use tailcut_proto::policy::{
    BoundEstimator, Jbsq, Jsq, PolicySpec, QueueModel, Random, RoundRobin, WorkerId,
};
use tailcut_proto::router::{AT_SERVER_MAX, IN_FLIGHT_MAX, SharedCounts, SharedPlaces};
use tailcut_proto::sealed::{PlaneSeal, PlaneSession};

use super::address::{ip_bytes, ip_words, port_word};
use super::{Attached, Mode, Object, SharedMemory, Tested, VARIABLES};
pub use layout::{COUNT_NAMES, SERVERS_MAX};
use layout::{COUNTS_MAX, CPUS_MAX, FIXED, KNOWN, LAYOUT, TAGGED, router, server};

/// Configuration that the program is given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpConfig {
    /// The address that requests are sent to.
    pub listen: SocketAddr,
    /// The policy, one of those that [`XdpRouter::knows`].
    pub policy: PolicySpec,
    /// Longest UDP payload that is placed, of sealed ones without the trailer; longer ones go up.
    pub packet_len_max: usize,
    /// Packets are sealed; the router then says how.
    pub is_sealed: bool,
}

/// A loaded program and its memory.
#[derive(Debug)]
pub struct XdpRouter {
    /// The program and its maps.
    object: Arc<Object>,
    /// The global variables.
    memory: Arc<SharedMemory>,
    /// The program at the interface, once it is there.
    attached: Option<Attached>,
    /// Folder in which it is pinned, if it is.
    folder: Option<PathBuf>,
}

/// The way of frames to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Ethernet address of the next hop.
    pub to: [u8; 6],
    /// Ethernet address of the interface.
    pub from: [u8; 6],
    /// Number of the interface.
    pub interface: u32,
    /// The VLAN that frames are tagged with.
    pub vlan: Option<u16>,
}

impl XdpRouter {
    /// True if the program has a policy.
    pub fn knows(policy: PolicySpec) -> bool {
        policy_code(policy).is_some()
    }

    /// Loads the program, which dies with this process.
    ///
    /// # Errors
    ///
    /// As [`Object::load`].
    pub fn load() -> io::Result<Self> {
        let object = Object::load(OBJECT)?;
        Self::of(object, None)
    }

    /// Loads the program with the memory that an earlier process has left in a folder, and leaves
    /// it there for the next. Memory of another version's layout is removed; its program stays
    /// until [`XdpRouter::attach`] replaces it.
    ///
    /// # Errors
    ///
    /// Those of making the folder, which must be in a file system of type bpf; else as
    /// [`Object::load`].
    pub fn load_pinned(folder: &Path) -> io::Result<Self> {
        let is_new = !folder.exists();
        fs::create_dir_all(folder)?;
        let loaded = Self::load_from(folder).or_else(|error| {
            if error.kind() != io::ErrorKind::InvalidData {
                return Err(error);
            }
            remove_if(folder, |name| !LINKS.contains(&name))?;
            Self::load_from(folder)
        });
        if loaded.is_err() && is_new {
            // Nobody is to find what does not work.
            let _ = remove(folder);
        }
        loaded
    }

    fn load_from(folder: &Path) -> io::Result<Self> {
        let was_there = folder.join(VARIABLES).exists();
        let router = Self::of(Object::load_pinned(OBJECT, folder)?, Some(folder.to_owned()))?;
        let layout = router.memory.word(router::LAYOUT);
        if was_there && layout.load(Ordering::Relaxed) != LAYOUT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another layout"));
        }
        layout.store(LAYOUT, Ordering::Relaxed);
        Ok(router)
    }

    /// Detaches and removes what an earlier process has left in a folder; nothing where nothing is.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn remove_pinned(folder: &Path) -> io::Result<()> {
        if folder.exists() { remove(folder) } else { Ok(()) }
    }

    fn of(object: Object, folder: Option<PathBuf>) -> io::Result<Self> {
        let memory = Arc::new(object.variables()?);
        Ok(Self { object: Arc::new(object), memory, attached: None, folder })
    }

    /// Tells the program what to do. Panics for a policy that it does not know.
    pub fn configure(&self, config: &XdpConfig) {
        let (policy, bound) = policy_code(config.policy).expect("the caller asks what is known");
        let XdpConfig { listen, packet_len_max, .. } = *config;
        let set = |offset, value| self.memory.word(offset).store(value, Ordering::Relaxed);
        // Nothing is placed while this changes.
        set(router::POLICY, 0);
        set(router::IS_SEALED, config.is_sealed.into());
        for (index, word) in ip_words(listen).into_iter().enumerate() {
            set(router::IP + 4 * index, word);
        }
        let [high, low] = listen.port().to_be_bytes();
        set(router::PORT, u32::from_ne_bytes([high, low, u8::from(is_v4(listen)), 0]));
        set(router::BOUND, bound);
        set(router::PACKET_LEN_MAX, packet_len_max as u32);
        set(router::IN_FLIGHT_MAX, IN_FLIGHT_MAX);
        set(router::AT_SERVER_MAX, AT_SERVER_MAX);
        self.memory.word(router::POLICY).store(policy, Ordering::Release);
    }

    /// Attaches the program to an interface, in the place of the one that an earlier process has
    /// pinned; of one in the other mode, once that is detached. True where it has taken such a
    /// place without a gap.
    ///
    /// # Errors
    ///
    /// As [`Object::attach`].
    pub fn attach(&mut self, interface: u32, mode: Mode) -> io::Result<bool> {
        let Some(folder) = &self.folder else {
            self.attached = Some(self.object.attach(PROGRAM, interface, mode)?);
            return Ok(false);
        };
        let (own, other) = match mode {
            Mode::Native => (LINKS[0], LINKS[1]),
            Mode::Generic => (LINKS[1], LINKS[0]),
        };
        let (path, other) = (folder.join(own), folder.join(other));
        if let Ok(attached) = Attached::open(&other) {
            // One whose interface has gone cannot be detached.
            let _ = attached.detach();
            fs::remove_file(&other)?;
        }
        if let Ok(attached) = Attached::open(&path) {
            // One whose interface has gone is of no use.
            if attached.replace(&self.object, PROGRAM).is_ok() {
                self.attached = Some(attached);
                return Ok(true);
            }
            fs::remove_file(&path)?;
        }
        let attached = self.object.attach(PROGRAM, interface, mode)?;
        attached.pin(&path)?;
        self.attached = Some(attached);
        Ok(false)
    }

    /// Detaches it, and removes what is pinned.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn detach(&mut self) -> io::Result<()> {
        if let Some(attached) = self.attached.take() {
            attached.detach()?;
        }
        self.folder.take().map_or(Ok(()), |folder| remove(&folder))
    }

    /// The program and its maps.
    pub(crate) fn object(&self) -> Arc<Object> {
        self.object.clone()
    }

    /// Its places, for a router to share.
    pub fn places(&self) -> XdpPlaces {
        let (object, memory) = (self.object.clone(), self.memory.clone());
        XdpPlaces { object, memory, entries: Vec::new() }
    }

    /// Counters since it was loaded, as [`COUNT_NAMES`] names them.
    pub fn counts(&self) -> [u64; COUNT_NAMES.len()] {
        std::array::from_fn(|index| self.count(index))
    }

    /// One of [`XdpRouter::counts`], by its place among [`COUNT_NAMES`]: all of them are thousands
    /// of words.
    ///
    /// # Panics
    /// Past the last of them.
    pub fn count(&self, index: usize) -> u64 {
        assert!(index < COUNT_NAMES.len(), "there is no counter {index}");
        let cpu = |cpu: usize| {
            let offset = router::COUNTS + 8 * (cpu * COUNTS_MAX + index);
            self.memory.long(offset).load(Ordering::Relaxed)
        };
        (0..CPUS_MAX).map(cpu).sum()
    }

    /// Addresses of servers and routers that the program knows; a system call for each.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn peers_len(&self) -> io::Result<usize> {
        self.object.keys_len(PEERS)
    }

    /// Sessions of sealed clients that the program knows; a system call for each.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn sessions_len(&self) -> io::Result<usize> {
        self.object.keys_len(seal::SESSIONS)
    }

    /// Runs the program on a packet, as [`Object::test`].
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn test(&self, packet: &[u8], repeat: u32) -> io::Result<Tested> {
        self.object.test(PROGRAM, packet, repeat)
    }

    /// Sets the random word of all decisions from now on, for tests.
    pub fn set_random(&self, word: u64) {
        self.memory.long(router::RANDOM).store(word, Ordering::Relaxed);
        self.memory.word(router::IS_RANDOM_SET).store(1, Ordering::Release);
    }
}

/// The places of servers in the program's memory.
pub struct XdpPlaces {
    /// The program's maps.
    object: Arc<Object>,
    /// The program's memory.
    memory: Arc<SharedMemory>,
    /// The entry of each of the router's slots.
    entries: Vec<Option<usize>>,
}

impl XdpPlaces {
    /// Removes servers that an earlier process has left, and that are none of these.
    pub fn keep_only(&self, servers: &[SocketAddr]) {
        for entry in 0..SERVERS_MAX {
            if let Some(addr) = self.addr(entry).filter(|addr| !servers.contains(addr)) {
                self.release(entry, addr);
            }
        }
    }

    /// Sets the way of frames to a server, which otherwise the kernel is asked for.
    pub fn set_way(&self, slot: WorkerId, way: Way) {
        let Some(entry) = self.entry(slot) else { return };
        let tag = way.vlan.map_or(0, |vlan| TAGGED | u64::from(vlan & 0xfff) << 48);
        self.long(entry, server::RESOLVED_AT).store(FIXED, Ordering::Relaxed);
        self.long(entry, server::SOURCE).store(mac(way.from), Ordering::Relaxed);
        self.word(entry, server::INTERFACE).store(way.interface, Ordering::Relaxed);
        self.long(entry, server::NEXT_HOP).store(KNOWN | tag | mac(way.to), Ordering::Release);
    }

    /// Reason why frames for a server cannot be sent by the program; `None` where they can, or
    /// nothing is known yet.
    pub fn obstacle(&self, slot: WorkerId) -> Option<&'static str> {
        let entry = self.entry(slot)?;
        let is_known = self.long(entry, server::NEXT_HOP).load(Ordering::Relaxed) != 0;
        let code = self.word(entry, server::FIB).load(Ordering::Relaxed);
        if is_known {
            return None;
        }
        Some(match code {
            0 => return None,
            1..=3 => "the route there refuses packets",
            4 => "it is on this host, or its route is no unicast route",
            FORWARDING_OFF => "the kernel does not forward on the interface",
            6 => "its route leads through a tunnel",
            7 => "its neighbour's address is not resolved",
            _ => "the kernel has no route there",
        })
    }

    fn entry(&self, slot: WorkerId) -> Option<usize> {
        self.entries.get(slot.index()).copied().flatten()
    }

    fn word(&self, entry: usize, field: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.word(router::SERVERS + entry * server::BYTES + field)
    }

    fn long(&self, entry: usize, field: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.long(router::SERVERS + entry * server::BYTES + field)
    }

    /// The server of an entry that is in use.
    fn addr(&self, entry: usize) -> Option<SocketAddr> {
        let port = self.word(entry, server::PORT).load(Ordering::Relaxed).to_ne_bytes();
        let port = u16::from_be_bytes([port[0], port[1]]);
        let mut ip = [0; 16];
        for (index, bytes) in ip.chunks_exact_mut(4).enumerate() {
            let word = self.word(entry, server::IP + 4 * index).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        let ip = std::net::Ipv6Addr::from(ip).to_canonical();
        (port != 0).then(|| SocketAddr::new(ip, port))
    }

    fn release(&self, entry: usize, addr: SocketAddr) {
        self.word(entry, server::IS_IN_SERVICE).store(0, Ordering::Release);
        self.list_in_service();
        self.release_peer(addr);
        self.word(entry, server::PORT).store(0, Ordering::Release);
        self.set_len();
    }

    /// Lists who is in service anew. A program that reads it meanwhile may find one twice, or one
    /// that has just left.
    fn list_in_service(&self) {
        let is_in_service =
            |entry: &usize| self.word(*entry, server::IS_IN_SERVICE).load(Ordering::Relaxed) != 0;
        let (mut list, mut len) = ([0; SERVERS_MAX], 0);
        for (place, entry) in (0..SERVERS_MAX).filter(is_in_service).enumerate() {
            (list[place], len) = (entry as u8, place as u32 + 1);
        }
        for (word, entries) in list.as_chunks().0.iter().enumerate() {
            let word = self.memory.word(router::IN_SERVICE + 4 * word);
            word.store(u32::from_ne_bytes(*entries), Ordering::Relaxed);
        }
        self.memory.word(router::IN_SERVICE_LEN).store(len, Ordering::Release);
    }

    fn set_len(&self) {
        let last = (0..SERVERS_MAX).rev().find(|&entry| self.addr(entry).is_some());
        let len = last.map_or(0, |last| last as u32 + 1);
        self.memory.word(router::LEN).store(len, Ordering::Release);
    }

    /// Adds a peer to the map; where that is full the peer's packets are dropped as a stranger's.
    /// It has room for twice the servers.
    fn know_peer(&self, addr: SocketAddr, entry: u32) {
        if let Err(error) = self.object.insert(PEERS, &peer_key(addr), &entry.to_ne_bytes()) {
            tracing::error!(%addr, %error, "the XDP router cannot know a server");
        }
    }

    fn release_peer(&self, addr: SocketAddr) {
        // One that is not there any more is what is wanted.
        let _ = self.object.remove(PEERS, &peer_key(addr));
    }

    fn write(&self, entry: usize, counts: &SharedCounts) {
        let at_server = counts.received.wrapping_sub(counts.concluded);
        let slots = pair(counts.placed, counts.seen.wrapping_sub(at_server));
        self.long(entry, server::SLOTS).store(slots, Ordering::Relaxed);
        self.write_report(entry, counts);
    }

    fn write_report(&self, entry: usize, counts: &SharedCounts) {
        let clip = |count: u32| count.min(0xffff);
        let report = pair(counts.received, counts.concluded);
        self.word(entry, server::IS_KNOWN).store(0, Ordering::Release);
        self.long(entry, server::COUNTS).store(report, Ordering::Relaxed);
        self.word(entry, server::EPOCH).store(counts.epoch.unwrap_or(0), Ordering::Relaxed);
        let load = clip(counts.reported) << 16 | clip(counts.waiting);
        self.word(entry, server::LOAD).store(load, Ordering::Relaxed);
        self.word(entry, server::IS_KNOWN).store(counts.epoch.is_some().into(), Ordering::Release);
    }

    fn read(&self, entry: usize) -> SharedCounts {
        let word = |field| self.word(entry, field).load(Ordering::Relaxed);
        // First: where it is old, what follows is looked at again.
        let reports = self.word(entry, server::REPORTS).load(Ordering::Acquire);
        let (placed, base) = halves(self.long(entry, server::SLOTS).load(Ordering::Relaxed));
        let (received, concluded) =
            halves(self.long(entry, server::COUNTS).load(Ordering::Relaxed));
        let load = word(server::LOAD);
        SharedCounts {
            placed,
            // So that what is outstanding is what the program reckons with.
            seen: base.wrapping_add(received.wrapping_sub(concluded)),
            received,
            concluded,
            epoch: (word(server::IS_KNOWN) != 0).then(|| word(server::EPOCH)),
            reported: load >> 16,
            waiting: load & 0xffff,
            reports,
            is_in_service: word(server::IS_IN_SERVICE) != 0,
        }
    }
}

impl fmt::Debug for XdpPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers =
            (0..SERVERS_MAX).filter_map(|entry| Some((self.addr(entry)?, self.read(entry))));
        f.debug_map().entries(servers).finish()
    }
}

impl SharedPlaces for XdpPlaces {
    fn add(&mut self, slot: WorkerId, addr: SocketAddr, counts: SharedCounts) -> SharedCounts {
        let known = (0..SERVERS_MAX).find(|&entry| self.addr(entry) == Some(addr));
        let free = || (0..SERVERS_MAX).find(|&entry| self.addr(entry).is_none());
        let entry =
            known.or_else(free).expect("a router has no more servers than there are places");
        if self.entries.len() <= slot.index() {
            self.entries.resize(slot.index() + 1, None);
        }
        self.entries[slot.index()] = Some(entry);
        if known.is_none() {
            self.write(entry, &counts);
            for field in [server::NEXT_HOP, server::RESOLVED_AT, server::NAME] {
                self.long(entry, field).store(0, Ordering::Relaxed);
            }
            for field in [server::REPORTS, server::IS_WANTED, server::IS_IN_SERVICE, server::FIB] {
                self.word(entry, field).store(0, Ordering::Relaxed);
            }
            for (index, word) in ip_words(addr).into_iter().enumerate() {
                self.word(entry, server::IP + 4 * index).store(word, Ordering::Relaxed);
            }
            self.word(entry, server::PORT).store(port_word(addr), Ordering::Release);
            self.set_len();
        }
        self.know_peer(addr, entry as u32);
        self.read(entry)
    }

    fn add_other(&mut self, addr: SocketAddr) {
        self.know_peer(addr, NOBODY);
    }

    fn remove(&mut self, slot: WorkerId, addr: SocketAddr) {
        let entry = self.entries.get_mut(slot.index()).and_then(Option::take);
        match entry {
            Some(entry) => self.release(entry, addr),
            None => self.release_peer(addr),
        }
    }

    fn counts(&self, slot: WorkerId) -> SharedCounts {
        self.entry(slot).map(|entry| self.read(entry)).unwrap_or_default()
    }

    fn take(&self, slot: WorkerId) -> u32 {
        let entry = self.entry(slot).expect("places are taken at servers that were added");
        let before = self.long(entry, server::SLOTS).fetch_add(1 << 32, Ordering::AcqRel);
        halves(before).0.wrapping_add(1)
    }

    fn correct(&self, slot: WorkerId, before: &SharedCounts, counts: &SharedCounts) {
        let Some(entry) = self.entry(slot) else { return };
        let more = counts.placed.wrapping_sub(before.placed);
        let base = counts.seen.wrapping_sub(counts.received.wrapping_sub(counts.concluded));
        self.word(entry, server::IS_KNOWN).store(0, Ordering::SeqCst);
        let corrected = |slots| Some(pair(halves(slots).0.wrapping_add(more), base));
        let slots = self.long(entry, server::SLOTS);
        let _ = slots.fetch_update(Ordering::AcqRel, Ordering::Relaxed, corrected);
        self.write_report(entry, counts);
    }

    fn set_bound(&self, bound: u32) {
        self.memory.word(router::BOUND).store(bound, Ordering::Relaxed);
    }

    fn set_in_service(&self, slot: WorkerId, is_in_service: bool) {
        if let Some(entry) = self.entry(slot) {
            self.word(entry, server::IS_IN_SERVICE).store(is_in_service.into(), Ordering::Release);
            self.list_in_service();
        }
    }

    fn want_feedback(&self, slot: WorkerId) {
        if let Some(entry) = self.entry(slot) {
            self.word(entry, server::IS_WANTED).store(1, Ordering::Release);
        }
    }

    fn set_held(&self, until: Option<Time>) {
        self.memory.long(router::HELD_UNTIL).store(until.unwrap_or(0), Ordering::SeqCst);
        // Before the counts are read again: the program writes them before it looks at this.
        fence(Ordering::SeqCst);
    }

    fn close(&self) {
        self.memory.word(router::POLICY).store(0, Ordering::Release);
    }

    fn set_seal(&self, seal: &PlaneSeal, transit_ns: u64) {
        self.write_seal(seal, transit_ns);
    }

    fn set_names(&self, slot: WorkerId, names: (u64, u64)) {
        if let Some(entry) = self.entry(slot) {
            self.write_names(entry, names);
        }
    }

    fn heard(&self, slot: WorkerId) -> (u64, u64) {
        let time = |entry, field| self.long(entry, field).load(Ordering::Relaxed);
        let of = |entry| (time(entry, server::HEARD), time(entry, server::PASSED));
        self.entry(slot).map(of).unwrap_or_default()
    }

    fn know_session(&self, client: SocketAddr, session: &PlaneSession) {
        self.write_session(client, session);
    }

    fn take_id(&self, now: Time, id: (u32, u64), until: Time) -> Option<WorkerId> {
        let entry = self.take_slot(now, id, until)?;
        let slot = self.entries.iter().position(|&of| of == Some(entry))?;
        Some(WorkerId::at(slot))
    }
}

/// The program's number of a policy, and the bound.
fn policy_code(policy: PolicySpec) -> Option<(u32, u32)> {
    let two = 2.try_into().expect("two is not zero");
    match policy.model() {
        _ if policy == Random::SPEC => Some((1, 0)),
        _ if policy == RoundRobin::SPEC => Some((2, 0)),
        _ if policy == Jsq::spec(two) => Some((3, 0)),
        QueueModel::Bounded(Some(bound)) if policy == Jbsq::spec(bound) => Some((4, bound.get())),
        // The router derives its bound, and tells it.
        QueueModel::Bounded(None) if policy == Jbsq::AUTO => {
            Some((4, BoundEstimator::INITIAL.get()))
        }
        _ => None,
    }
}

/// Removes what is pinned in a folder, and the folder.
fn remove(folder: &Path) -> io::Result<()> {
    remove_if(folder, |_| true)?;
    fs::remove_dir(folder)
}

/// Removes the files of these names.
fn remove_if(folder: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(&is_meant) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_v4(addr: SocketAddr) -> bool {
    ip_bytes(addr)[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}

fn peer_key(addr: SocketAddr) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&ip_bytes(addr));
    key[16..].copy_from_slice(&port_word(addr).to_ne_bytes());
    key
}

/// An Ethernet address as the bytes of a word begin.
fn mac(address: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// `ebpf/router.bpf.c`.
const OBJECT: &[u8] = include_bytes!("objects/router.bpf.o");
/// Its function and its map.
const PROGRAM: &str = "route";
const PEERS: &str = "peers";
/// Names under which the link is pinned, in the driver and behind it.
const LINKS: [&str; 2] = ["native", "generic"];
/// In the map: a peer that only user space deals with.
const NOBODY: u32 = u32::MAX;
/// `BPF_FIB_LKUP_RET_FWD_DISABLED`.
const FORWARDING_OFF: u32 = 5;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn memory_outlives_a_process_but_not_its_layout() {
        let name = format!("tailcut-layout-{}", std::process::id());
        let folder = Path::new("/sys/fs/bpf").join(name);
        let load = || XdpRouter::load_pinned(&folder);
        let Ok(first) = load() else {
            let text = "SKIPPED: CAP_BPF or a file system of type bpf is missing";
            return writeln!(io::stderr(), "{text}").expect("standard error");
        };
        first.memory.word(router::BOUND).store(7, Ordering::Relaxed);
        drop(first);
        let second = load().expect("it is there");
        assert_eq!(second.memory.word(router::BOUND).load(Ordering::Relaxed), 7);
        second.memory.word(router::LAYOUT).store(LAYOUT + 1, Ordering::Relaxed);
        drop(second);
        let mut third = load().expect("it is made anew");
        assert_eq!(third.memory.word(router::BOUND).load(Ordering::Relaxed), 0);
        assert_eq!(third.memory.word(router::LAYOUT).load(Ordering::Relaxed), LAYOUT);
        third.detach().expect("nothing is attached");
        assert!(!folder.exists());
    }
}
