//! Programs of XDP: loaded, run on packets that a test gives, attached to an interface and pinned.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::bpf::{Attributes, Instruction, PROG_LOAD, bpf, bpf_fd, open_pinned, pin};

/// A program that the kernel has taken.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

/// Packets that a program is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramKind {
    /// Packets of several buffers too, and not of one alone.
    pub(crate) takes_parts: bool,
    /// Packets that another program has redirected by a map of devices, at their egress.
    pub(crate) is_egress: bool,
}

/// A program at an interface: it is detached when the last of these is dropped, unless it is
/// pinned.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

/// Verdict of a program on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// It failed.
    Aborted = 0,
    /// The packet is dropped.
    Drop = 1,
    /// It goes on to the kernel.
    Pass = 2,
    /// It leaves where it came from.
    Transmit = 3,
    /// It leaves elsewhere.
    Redirect = 4,
}

/// A packet after a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Verdict of the last run.
    pub verdict: Verdict,
    /// The packet as the program has left it.
    pub packet: Vec<u8>,
    /// The time that it took on average, nanoseconds.
    pub ns: u32,
}

impl Program {
    /// Loads a program of XDP.
    ///
    /// # Errors
    ///
    /// What the kernel says: PermissionDenied without CAP_BPF and CAP_NET_ADMIN; else with the last
    /// words of its verifier.
    pub(crate) fn load(
        instructions: &[Instruction],
        (license, kind): (&CStr, ProgramKind),
    ) -> io::Result<Self> {
        let mut load = ProgramLoad {
            kind: PROG_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel: 0,
            flags: if kind.takes_parts { HAS_FRAGS } else { 0 },
            name: [0; 16],
            interface: 0,
            attach_type: if kind.is_egress { ATTACH_DEVMAP } else { 0 },
        };
        let error = match bpf_fd(PROG_LOAD, &load) {
            // That of a verifier who refuses is another one, EACCES.
            Err(error) if error.raw_os_error() != Some(libc::EPERM) => error,
            loaded => return loaded.map(Self),
        };
        // Once more, for its words.
        let mut log = vec![0u8; LOG_BYTES];
        (load.log_level, load.log_bytes) = (1, LOG_BYTES as u32);
        load.log = log.as_mut_ptr() as u64;
        if let Ok(program) = bpf_fd(PROG_LOAD, &load) {
            return Ok(Self(program));
        }
        let words = String::from_utf8_lossy(&log);
        let words: Vec<&str> = words.trim_end_matches('\0').lines().collect();
        let last = words[words.len().saturating_sub(LOG_LINES)..].join("; ");
        Err(io::Error::other(format!("{error}: {last}")))
    }

    /// The number by which maps name it.
    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Runs it on a packet, `repeat` times over what the time before has left.
    pub(crate) fn test(&self, packet: &[u8], repeat: u32) -> io::Result<Tested> {
        // The kernel gives a program 256 bytes more, to grow into.
        let mut out = vec![0u8; packet.len() + 256];
        let mut run = TestRun {
            program: self.0.as_raw_fd(),
            verdict: 0,
            bytes_in: packet.len() as u32,
            bytes_out: out.len() as u32,
            packet_in: packet.as_ptr() as u64,
            packet_out: out.as_mut_ptr() as u64,
            repeat,
            ns: 0,
        };
        bpf(PROG_TEST_RUN, &mut run)?;
        out.truncate(run.bytes_out as usize);
        let verdict = match run.verdict {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Transmit,
            4 => Verdict::Redirect,
            _ => Verdict::Aborted,
        };
        Ok(Tested { verdict, packet: out, ns: run.ns })
    }

    /// Attaches it to an interface, in the driver where `is_native`, else behind it.
    ///
    /// # Errors
    ///
    /// What the kernel says: ResourceBusy where another program is attached, Unsupported where the
    /// driver knows no XDP.
    pub(crate) fn attach(&self, interface: u32, is_native: bool) -> io::Result<Link> {
        let create = LinkCreate {
            program: self.0.as_raw_fd(),
            interface,
            attach_type: ATTACH_XDP,
            flags: if is_native { FLAGS_DRV_MODE } else { FLAGS_SKB_MODE },
        };
        bpf_fd(LINK_CREATE, &create).map(Link)
    }
}

impl Link {
    /// The link that is pinned at a path.
    pub(crate) fn open(path: &CStr) -> io::Result<Self> {
        open_pinned(path).map(Self)
    }

    /// Gives it a name in a file system of type bpf, which keeps it when this process has ended.
    pub(crate) fn pin(&self, path: &CStr) -> io::Result<()> {
        pin(self.0.as_fd(), path)
    }

    /// Puts another program in the place of its one; no packet comes between.
    pub(crate) fn replace(&self, program: &Program) -> io::Result<()> {
        let (link, program) = (self.0.as_raw_fd(), program.0.as_raw_fd());
        bpf(LINK_UPDATE, &mut LinkUpdate { link, program, flags: 0 }).map(|_| ())
    }

    /// Detaches it now, whoever else holds it.
    pub(crate) fn detach(&self) -> io::Result<()> {
        bpf(LINK_DETACH, &mut LinkDetach { link: self.0.as_raw_fd() }).map(|_| ())
    }
}

/// The number of an interface by its name.
pub(crate) fn interface_index(name: &CStr) -> Option<u32> {
    // SAFETY: the name ends with a zero, and the call reads it alone.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

#[derive(Clone)]
#[repr(C)]
struct ProgramLoad {
    /// `BPF_PROG_TYPE_...`.
    kind: u32,
    /// Number of the instructions, 8 bytes each.
    count: u32,
    /// Address of the instructions.
    instructions: u64,
    /// Address of the license's name, which ends with a zero.
    license: u64,
    /// Level of detail of the verifier's log.
    log_level: u32,
    /// Room for it.
    log_bytes: u32,
    /// Address of the log's buffer.
    log: u64,
    /// Any version.
    kernel: u32,
    /// `BPF_F_...`.
    flags: u32,
    /// None.
    name: [u8; 16],
    /// Interface of a program that hardware runs: none.
    interface: u32,
    /// `BPF_XDP_DEVMAP`, or zero.
    attach_type: u32,
}

#[derive(Clone)]
#[repr(C)]
struct TestRun {
    /// The program.
    program: i32,
    /// The answer: what the program returned.
    verdict: u32,
    /// Bytes of the packet.
    bytes_in: u32,
    /// Room for the packet afterwards; the answer: its length.
    bytes_out: u32,
    /// Address of the packet.
    packet_in: u64,
    /// Address of the buffer for the packet afterwards.
    packet_out: u64,
    /// Runs.
    repeat: u32,
    /// The answer: nanoseconds of one.
    ns: u32,
}

#[derive(Clone)]
#[repr(C)]
struct LinkCreate {
    /// The program.
    program: i32,
    /// The number of the interface.
    interface: u32,
    /// `BPF_XDP`.
    attach_type: u32,
    /// `XDP_FLAGS_...`.
    flags: u32,
}

#[derive(Clone)]
#[repr(C)]
struct LinkUpdate {
    /// The link.
    link: i32,
    /// The new program.
    program: i32,
    /// None.
    flags: u32,
}

#[derive(Clone)]
#[repr(C)]
struct LinkDetach {
    /// The link.
    link: i32,
}

impl Attributes for ProgramLoad {}
impl Attributes for TestRun {}
impl Attributes for LinkCreate {}
impl Attributes for LinkUpdate {}
impl Attributes for LinkDetach {}

// Of <linux/bpf.h> and <linux/if_link.h>.
const PROG_TEST_RUN: libc::c_int = 10;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;
const LINK_DETACH: libc::c_int = 34;
const PROG_TYPE_XDP: u32 = 6;
const HAS_FRAGS: u32 = 1 << 5;
const ATTACH_XDP: u32 = 37;
const ATTACH_DEVMAP: u32 = 33;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

/// Room for the verifier's words of any program here.
const LOG_BYTES: usize = 1 << 24;

/// As many of them as fit an error.
const LOG_LINES: usize = 4;
