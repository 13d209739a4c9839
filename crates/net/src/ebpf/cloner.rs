//! The XDP cloner: `ebpf/cloner.bpf.c`, NetClone's switch before the kernel's network stack.
//!
//! | | |
//! |---|---|
//! | a request for the switch, both servers' ways known | is placed on one, or cloned to two |
//! | a response of a server | its load and its way are noted; it goes to the client, or is the slower of two and dropped |
//! | a request to servers whose ways are not known yet, or one of which is out | goes up to a socket of this host, counted |
//! | what is malformed, or comes from whom it cannot come | is dropped, counted by reason |
//!
//! Clients and servers are behind one interface. The way to a server is where its responses come
//! from, so the first of them, whatever it answers, makes the program place there.
//!
//! User space deals with the pairs of a server that does not answer: it releases the way there
//! ([`XdpCloner::release_way`]), until the server answers what user space has tried it with.
//!
//! Invariant: it decides as [`tailcut_proto::netclone::Switch`] whose servers are all in service.
//! What is attached is detached when this is dropped, or its process killed.

mod layout;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use tailcut_proto::netclone::{Fallback, pair};
use tailcut_wire::netclone::{SEQ_MAX, SERVERS_MAX};

pub use self::layout::COUNT_NAMES;
use self::layout::{COUNTS_MAX, CPUS_MAX, FILTER_LEN, cloner, server};
use super::address::{ip_words, port_word};
use super::{Attached, Mode, Object, SharedMemory, Tested};

/// Configuration that the program is given once.
#[derive(Clone, Debug)]
pub struct ClonerConfig {
    /// The address that requests are sent to and that servers answer to.
    pub listen: SocketAddr,
    /// The servers, by their ids; at most 16, of the same family of addresses.
    pub servers: Vec<SocketAddr>,
    /// Choice of the server for a request that is not cloned.
    pub fallback: Fallback,
    /// Cells in each of the filter's tables: a power of two up to 131,072.
    pub filter_len: u32,
    /// The id of the first request, 1 to 100,000,000, and the bits of `tidx` above the lowest
    /// towards servers. At random in service, so that responses to an earlier run's requests are
    /// told.
    pub first: (u32, u32),
}

/// State that the program keeps of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClonerServer {
    /// Requests placed there, without clones. Wraps.
    pub asked: u32,
    /// Responses from there, without those that went up. Wraps.
    pub answered: u32,
    /// Requests that wait there, as it has reported last.
    pub load: u32,
    /// The way there is known.
    pub has_way: bool,
}

/// A loaded program and its memory.
#[derive(Debug)]
pub struct XdpCloner {
    /// The programs and their maps.
    object: Object,
    /// The global variables.
    memory: SharedMemory,
    /// The program at the interface, once it is there.
    attached: Option<Attached>,
}

impl XdpCloner {
    /// Loads the program, which dies with this process.
    ///
    /// # Errors
    ///
    /// As [`Object::load`].
    pub fn load() -> io::Result<Self> {
        let object = Object::load(OBJECT)?;
        let memory = object.variables()?;
        Ok(Self { object, memory, attached: None })
    }

    /// Tells the program what to do, before it is attached.
    ///
    /// # Errors
    ///
    /// InvalidInput for a field that is out of its range.
    pub fn configure(&self, config: &ClonerConfig) -> io::Result<()> {
        let (first_seq, epoch) = config.first;
        let count = config.servers.len() as u32;
        let is_valid = (1..=SERVERS_MAX).contains(&count)
            && config.filter_len.is_power_of_two()
            && config.filter_len <= FILTER_LEN
            && (1..=SEQ_MAX).contains(&first_seq)
            && config.servers.iter().all(|addr| addr.is_ipv4() == config.listen.is_ipv4());
        if !is_valid {
            let text = "a cloner has 1 to 16 servers of its own family of addresses, a filter of a power of two up to \
                        131,072 and a first id";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let set = |offset, value| self.memory.word(offset).store(value, Ordering::Relaxed);
        self.memory.long(cloner::IDS).store(u64::from(first_seq) - 1, Ordering::Relaxed);
        for (place, word) in (0..).zip(ip_words(config.listen)) {
            set(cloner::IP + 4 * place, word);
        }
        let is_shorter = config.fallback == Fallback::Shorter;
        let [one, two] = config.listen.port().to_be_bytes();
        let flags = [config.listen.is_ipv4().into(), is_shorter.into()];
        set(cloner::PORT, u32::from_ne_bytes([one, two, flags[0], flags[1]]));
        set(cloner::EPOCH, epoch & !1);
        set(cloner::FILTER_MASK, config.filter_len - 1);
        set(cloner::SERVERS_LEN, count);
        set(cloner::GROUPS_LEN, count * (count - 1));
        for (index, addr) in config.servers.iter().enumerate() {
            self.replace(index, *addr);
        }
        // Two pairs fill a word.
        for word in 0..cloner::GROUPS_MAX / 2 {
            let pair_of = |group: usize| {
                let none = (0, 1 % config.servers.len());
                let (first, second) = pair(group as u32, count).unwrap_or(none);
                [first as u8, second as u8]
            };
            let ([a, b], [c, d]) = (pair_of(2 * word), pair_of(2 * word + 1));
            set(cloner::PAIRS + 4 * word, u32::from_ne_bytes([a, b, c, d]));
        }
        Ok(())
    }

    /// Puts a server in the place of the one of this id; the way to it is not known until it
    /// answers. Panics for an id above 15.
    pub fn replace(&self, index: usize, addr: SocketAddr) {
        // Nothing is placed there while this changes.
        self.set_out(index, true);
        let set = |field, value| self.word(index, field).store(value, Ordering::Relaxed);
        for field in [server::INTERFACE, server::LOAD, server::ASKED, server::ANSWERED] {
            set(field, 0);
        }
        for (place, word) in (0..).zip(ip_words(addr)) {
            set(server::IP + 4 * place, word);
        }
        set(server::PORT, port_word(addr));
        self.set_out(index, false);
    }

    /// Leaves the pairs of a server to user space, or takes them back. Panics for an id above 15.
    pub fn set_out(&self, index: usize, is_out: bool) {
        self.word(index, server::IS_OUT).store(is_out.into(), Ordering::Release);
    }

    /// Leaves the pairs of a server to user space until it answers. Panics for an id above 15.
    pub fn release_way(&self, index: usize) {
        self.word(index, server::INTERFACE).store(0, Ordering::Release);
    }

    /// State that the program keeps of a server. Panics for an id above 15.
    pub fn server(&self, index: usize) -> ClonerServer {
        let read = |field| self.word(index, field).load(Ordering::Relaxed);
        ClonerServer {
            // First, so that an answer is not of what is not counted.
            answered: self.word(index, server::ANSWERED).load(Ordering::Acquire),
            asked: read(server::ASKED),
            load: read(server::LOAD),
            has_way: read(server::INTERFACE) != 0,
        }
    }

    fn word(&self, index: usize, field: usize) -> &AtomicU32 {
        assert!(index < SERVERS_MAX as usize, "ids end at 15");
        self.memory.word(cloner::SERVERS + index * server::BYTES + field)
    }

    /// Attaches the program to an interface of this thread's network namespace.
    ///
    /// # Errors
    ///
    /// As [`Object::attach`].
    pub fn attach(&mut self, interface: u32, mode: Mode) -> io::Result<()> {
        for copy in 0..2 {
            self.object.set_device((COPIES, copy), (interface, MARK))?;
        }
        self.attached = Some(self.object.attach(PROGRAM, interface, mode)?);
        Ok(())
    }

    /// Counters since it was loaded, as [`COUNT_NAMES`] names them.
    pub fn counts(&self) -> [u64; COUNT_NAMES.len()] {
        let cpu = |cpu: usize, index: usize| {
            let offset = cloner::COUNTS + 8 * (cpu * COUNTS_MAX + index);
            self.memory.long(offset).load(Ordering::Relaxed)
        };
        std::array::from_fn(|index| (0..CPUS_MAX).map(|at| cpu(at, index)).sum())
    }

    /// Runs the program on a packet, as [`Object::test`].
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn test(&self, packet: &[u8]) -> io::Result<Tested> {
        self.object.test(PROGRAM, packet, 1)
    }

    /// Runs what a copy of a request runs through at its egress: the first, and then the second
    /// on the same CPU, which is told by the first.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn test_egress(&self, packet: &[u8]) -> io::Result<Tested> {
        self.object.test(MARK_TESTED, packet, 1)
    }
}

/// `ebpf/cloner.bpf.c`.
const OBJECT: &[u8] = include_bytes!("objects/cloner.bpf.o");
/// Its functions.
const PROGRAM: &str = "clone";
const MARK: &str = "mark";
const MARK_TESTED: &str = "mark_tested";
/// The map of the interfaces that copies leave by.
const COPIES: &str = "copies";
