//! The eBPF program that gives a new session the thread with the shortest queue.
//!
//! | a packet | of the program |
//! |---|---|
//! | of a session that has a thread | that thread's |
//! | of another session | of the thread with the fewest requests, and of those with the fewest sessions so far |
//! | of another session, and no more are remembered | by a hash of the session |
//! | version 1 | by its request id, as [`Steering::Session`](super::Steering::Session) does |
//! | too short for its form | the first thread's, which counts it as malformed |
//! | for a thread whose socket is not there, or is gone | dropped |
//!
//! A session is the high 40 bits of the RPC id, or of Homa a client's address. The thread that it
//! has remembers which of its requests have run; so nobody makes room for others, and strangers who
//! fill the map make the rest as it would be without.
//!
//! Invariant: a session has one thread for as long as the group lives, also where two cores see its
//! first packets at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Steering;
use crate::datapath::Datapath;
use crate::datapath::udp::{self, UdpConfig, UdpPort};
use crate::sys::{Instruction, Map, MapKind, SharedMemory, attach_reuseport_program};

/// Queue length of a thread of a group: the requests that wait for it, which it reports here.
#[derive(Debug)]
pub struct QueueLen {
    /// Counters of all threads of the group.
    counters: Arc<SharedMemory>,
    /// The place of this one's.
    place: usize,
}

impl QueueLen {
    /// Says that so many requests wait or are served; new sessions go where there are fewest.
    #[inline]
    pub fn set(&self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.counters.at(self.place).store(requests, Ordering::Relaxed);
    }
}

/// As [`bind_group`](super::bind_group), where each new session joins the shortest queue, as the
/// threads tell of theirs by [`QueueLen::set`]. `steering` says what a session is.
///
/// # Errors
///
/// InvalidInput when `count` is 0 or above [`COUNT_MAX`]; Unsupported when the kernel does not load
/// the program, because it is too old or the process lacks CAP_BPF and CAP_NET_ADMIN; else what it
/// says of the address.
pub fn bind_shortest(
    address: SocketAddr,
    count: usize,
    (config, steering): (UdpConfig, Steering),
) -> io::Result<Vec<(UdpPort, QueueLen)>> {
    if !(1..=COUNT_MAX).contains(&count) {
        let text = format!("a group of {count} ports; take 1 to {COUNT_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let maps = Maps::new(count as u32).map_err(unsupported)?;
    let counters = Arc::new(maps.lens.counters().map_err(unsupported)?);
    let mut ports: Vec<(UdpPort, QueueLen)> = Vec::with_capacity(count);
    for index in 0..count {
        let socket = udp::open(address)?;
        socket.set_reuse_port(true)?;
        let bound = ports.first().map_or(address, |(port, _)| port.local_address());
        socket.bind(&bound.into())?;
        if index == 0 {
            // Before the others join, so that no packet is ever steered without it.
            let program = maps.program(count, steering);
            attach_reuseport_program(socket.as_fd(), &program).map_err(unsupported)?;
        }
        maps.sockets.set_socket(index as u32, socket.as_fd()).map_err(unsupported)?;
        let place = index * (LINE_BYTES / 4) + 1;
        let queue_len = QueueLen { counters: counters.clone(), place };
        ports.push((UdpPort::from_socket(socket, config)?, queue_len));
    }
    Ok(ports)
}

fn unsupported(error: io::Error) -> io::Error {
    let text = format!(
        "the kernel refuses the eBPF program that joins the shortest queue ({error}): it takes Linux 5.5, CAP_BPF and CAP_NET_ADMIN"
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// Maps that the program reads and writes.
struct Maps {
    /// The thread of each session.
    sessions: Map,
    /// One value: of each thread a line, sessions so far in its first word and requests in its
    /// second, so that both are one number, the requests first.
    lens: Map,
    /// The threads' sockets.
    sockets: Map,
}

impl Maps {
    fn new(count: u32) -> io::Result<Self> {
        let lines_bytes = count * LINE_BYTES as u32;
        Ok(Self {
            sessions: Map::new(MapKind::Hash, (8, 4), SESSIONS_MAX)?,
            lens: Map::new(MapKind::SharedArray, (4, lines_bytes), 1)?,
            sockets: Map::new(MapKind::Sockets, (4, 8), count)?,
        })
    }

    /// The program for `count` threads.
    fn program(&self, count: usize, steering: Steering) -> Vec<Instruction> {
        let mut program = Program::default();
        program.extend([mov(R6, R1)]);
        match steering {
            Steering::Session => program.read_session(count as i32),
            Steering::Peer => {
                program.extend([load(WORD, R1, R6, MD_HASH), store(DOUBLE, R10, KEY, R1)]);
            }
        }
        // The thread that the session has.
        let known = program.lookup(&self.sessions);
        self.choose(&mut program, count);
        // Whoever came first on another core has chosen.
        program.extend([mov(R2, R10), add(R2, KEY.into()), mov(R3, R10), add(R3, INDEX.into())]);
        program.load_map(R1, &self.sessions);
        program.extend([set(R4, NO_EXIST), call(MAP_UPDATE_ELEM)]);
        let known_now = program.lookup(&self.sessions);
        program.extend([load(DOUBLE, R1, R10, KEY), mov(R2, R1), shift_right(R2, 20)]);
        program.extend([add_register(R1, R2)]);
        program.spread(count as i32);
        let select = program.jump(JUMP);
        program.to_select.push(select);
        program.land(known);
        program.land(known_now);
        program.extend([load(WORD, R1, R0, 0), store(WORD, R10, INDEX, R1)]);
        program.land_at_select();
        program.extend([mov(R1, R6), mov(R3, R10), add(R3, INDEX.into()), set(R4, 0)]);
        program.load_map(R2, &self.sockets);
        program.extend([
            call(SK_SELECT_REUSEPORT),
            jump_if(JEQ, R0, 0, 2),
            set(R0, SK_DROP),
            EXIT,
            set(R0, SK_PASS),
            EXIT,
        ]);
        program.instructions
    }

    /// Puts the thread with the least into [`INDEX`], and counts the session there.
    fn choose(&self, program: &mut Program, count: usize) {
        program.load_value(R7, &self.lens);
        program.extend([load(DOUBLE, R8, R7, 0), set(R9, 0)]);
        for index in 1..count {
            let line = (index * LINE_BYTES) as i16;
            program.extend([
                load(DOUBLE, R1, R7, line),
                jump_if_register(JGE, R1, R8, 2),
                mov(R8, R1),
                set(R9, index as i32),
            ]);
        }
        program.extend([
            store(WORD, R10, INDEX, R9),
            shift_left(R9, LINE_BYTES.trailing_zeros() as i32),
            add_register(R7, R9),
            set(R1, 1),
            atomic_add(R7, 0, R1),
        ]);
    }
}

/// Instructions, and the jumps that are to land at what comes later.
#[derive(Default)]
struct Program {
    /// Instructions of 8 bytes each.
    instructions: Vec<Instruction>,
    /// Jumps to where the socket is selected.
    to_select: Vec<usize>,
}

impl Program {
    fn extend(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    /// A jump that does not know yet where to.
    fn jump(&mut self, jump: Instruction) -> usize {
        self.instructions.push(jump);
        self.instructions.len() - 1
    }

    /// Lets a jump land at the next instruction.
    fn land(&mut self, jump: usize) {
        let offset = self.instructions.len() - jump - 1;
        self.instructions[jump].offset = offset as i16;
    }

    fn land_at_select(&mut self) {
        for jump in std::mem::take(&mut self.to_select) {
            self.land(jump);
        }
    }

    /// Puts the session of a packet into [`KEY`]; of what has none the thread into [`INDEX`].
    fn read_session(&mut self, count: i32) {
        self.extend([set(R1, 0), store(WORD, R10, INDEX, R1)]);
        self.load_payload(0);
        self.extend([load(BYTE, R1, R10, PAYLOAD + 1)]);
        let extended = self.jump(jump_if(JGE, R1, super::EXTENDED_LEN_MIN as i32, 0));
        self.extend([load(HALF, R1, R10, PAYLOAD + 4)]);
        self.spread(count);
        let select = self.jump(JUMP);
        self.to_select.push(select);
        self.land(extended);
        self.load_payload(8);
        // The first five bytes of eight, in whichever order: they are a key.
        self.extend([
            load(DOUBLE, R1, R10, PAYLOAD),
            shift_left(R1, if cfg!(target_endian = "little") { 24 } else { 0 }),
            shift_right(R1, 24),
            store(DOUBLE, R10, KEY, R1),
        ]);
    }

    /// Puts a thread by a hash of R1 into [`INDEX`].
    fn spread(&mut self, count: i32) {
        self.extend([
            multiply(R1, super::FIBONACCI.cast_signed()),
            shift_right(R1, 16),
            modulo(R1, count),
            store(WORD, R10, INDEX, R1),
        ]);
    }

    /// Copies eight bytes of the UDP payload to [`PAYLOAD`]; what has fewer is the first thread's.
    fn load_payload(&mut self, offset: i32) {
        self.extend([
            mov(R1, R6),
            set(R2, UDP_HEADER_BYTES + offset),
            mov(R3, R10),
            add(R3, PAYLOAD.into()),
            set(R4, 8),
            call(SKB_LOAD_BYTES),
        ]);
        let short = self.jump(jump_if(JNE, R0, 0, 0));
        self.to_select.push(short);
    }

    /// Looks up [`KEY`]; the jump is taken where it is there, with its value at R0.
    fn lookup(&mut self, map: &Map) -> usize {
        self.load_map(R1, map);
        self.extend([mov(R2, R10), add(R2, KEY.into()), call(MAP_LOOKUP_ELEM)]);
        self.jump(jump_if(JNE, R0, 0, 0))
    }

    fn load_map(&mut self, register: u8, map: &Map) {
        self.load_wide(register, (PSEUDO_MAP_FD, map.number()));
    }

    /// The address of the only value of an array.
    fn load_value(&mut self, register: u8, map: &Map) {
        self.load_wide(register, (PSEUDO_MAP_VALUE, map.number()));
    }

    fn load_wide(&mut self, register: u8, (kind, immediate): (u8, i32)) {
        self.extend([
            Instruction { code: 0x18, registers: kind << 4 | register, offset: 0, immediate },
            Instruction { code: 0, registers: 0, offset: 0, immediate: 0 },
        ]);
    }
}

const fn instruction(code: u8, (to, from): (u8, u8), offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}

/// `to = from`, 64 bits as all that follow.
fn mov(to: u8, from: u8) -> Instruction {
    instruction(0xbf, (to, from), 0, 0)
}

fn set(to: u8, immediate: i32) -> Instruction {
    instruction(0xb7, (to, 0), 0, immediate)
}

fn add(to: u8, immediate: i32) -> Instruction {
    instruction(0x07, (to, 0), 0, immediate)
}

fn add_register(to: u8, from: u8) -> Instruction {
    instruction(0x0f, (to, from), 0, 0)
}

/// `to *= immediate`, 32 bits, which clears the others.
fn multiply(to: u8, immediate: i32) -> Instruction {
    instruction(0x24, (to, 0), 0, immediate)
}

fn modulo(to: u8, immediate: i32) -> Instruction {
    instruction(0x97, (to, 0), 0, immediate)
}

fn shift_left(to: u8, immediate: i32) -> Instruction {
    instruction(0x67, (to, 0), 0, immediate)
}

fn shift_right(to: u8, immediate: i32) -> Instruction {
    instruction(0x77, (to, 0), 0, immediate)
}

/// `to = *(size *)(from + offset)`.
fn load(size: u8, to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61 | size, (to, from), offset, 0)
}

/// `*(size *)(to + offset) = from`.
fn store(size: u8, to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x63 | size, (to, from), offset, 0)
}

/// `lock *(u32 *)(to + offset) += from`.
fn atomic_add(to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0xc3, (to, from), offset, 0)
}

fn jump_if(how: u8, register: u8, immediate: i32, offset: i16) -> Instruction {
    instruction(0x05 | how, (register, 0), offset, immediate)
}

fn jump_if_register(how: u8, left: u8, right: u8, offset: i16) -> Instruction {
    instruction(0x0d | how, (left, right), offset, 0)
}

fn call(helper: i32) -> Instruction {
    instruction(0x85, (0, 0), 0, helper)
}

const JUMP: Instruction = instruction(0x05, (0, 0), 0, 0);
const EXIT: Instruction = instruction(0x95, (0, 0), 0, 0);

// Registers: the result and arguments of helpers, what they keep, and the end of the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R6: u8 = 6;
const R7: u8 = 7;
const R8: u8 = 8;
const R9: u8 = 9;
const R10: u8 = 10;

// Sizes of loads and stores.
const WORD: u8 = 0x00;
const HALF: u8 = 0x08;
const BYTE: u8 = 0x10;
const DOUBLE: u8 = 0x18;

// Conditions.
const JEQ: u8 = 0x10;
const JGE: u8 = 0x30;
const JNE: u8 = 0x50;

// Helpers.
const MAP_LOOKUP_ELEM: i32 = 1;
const MAP_UPDATE_ELEM: i32 = 2;
const SKB_LOAD_BYTES: i32 = 26;
const SK_SELECT_REUSEPORT: i32 = 82;

const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const NO_EXIST: i32 = 1;
const SK_DROP: i32 = 0;
const SK_PASS: i32 = 1;

/// Offset in `struct sk_reuseport_md` of the hash of both addresses.
const MD_HASH: i16 = 32;

// On the stack.
const KEY: i16 = -8;
const INDEX: i16 = -16;
const PAYLOAD: i16 = -24;

const UDP_HEADER_BYTES: i32 = 8;

/// Sessions that are remembered: some 100 bytes each, as they come.
const SESSIONS_MAX: u32 = 1 << 18;

/// A line for each thread, so that none waits for another's count.
const LINE_BYTES: usize = 64;

/// The most threads of a group.
pub const COUNT_MAX: usize = 8;
