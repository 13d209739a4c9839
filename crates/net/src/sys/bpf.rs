//! bpf(2), as far as a program of a few instructions needs it: maps, memory that one of them shares with
//! this process, and loading.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use super::check;
use super::options::set_int_option;

/// An instruction, as `struct bpf_insn` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    /// Operation.
    pub(crate) code: u8,
    /// Destination register in the low half, source register in the high one.
    pub(crate) registers: u8,
    /// Offset of a jump or a memory access.
    pub(crate) offset: i16,
    /// Constant.
    pub(crate) immediate: i32,
}

/// The kinds of maps that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Values by index, in memory that a process can share.
    SharedArray,
    /// Values by key, whose memory is taken as they come.
    Hash,
    /// Sockets of a reuseport group by index.
    Sockets,
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map(OwnedFd);

/// Counters in a map of kind [`MapKind::SharedArray`], shared with programs.
#[derive(Debug)]
pub(crate) struct SharedCounters {
    /// A page's worth of counters.
    memory: NonNull<AtomicU32>,
}

// SAFETY: it owns the mapping, and its atomics may be used from any thread.
unsafe impl Send for SharedCounters {}
// SAFETY: as above.
unsafe impl Sync for SharedCounters {}

impl Map {
    /// A map of `len` values of `value_bytes`, whose keys have `key_bytes`.
    pub(crate) fn new(
        kind: MapKind,
        (key_bytes, value_bytes): (u32, u32),
        len: u32,
    ) -> io::Result<Self> {
        let (kind, flags) = match kind {
            MapKind::SharedArray => (MAP_TYPE_ARRAY, MAP_MMAPABLE),
            MapKind::Hash => (MAP_TYPE_HASH, MAP_NO_PREALLOC),
            MapKind::Sockets => (MAP_TYPE_REUSEPORT_SOCKARRAY, 0),
        };
        bpf_fd(MAP_CREATE, &MapCreate { kind, key_bytes, value_bytes, len, flags }).map(Self)
    }

    /// Sets the socket at `index` of a map of sockets.
    pub(crate) fn set_socket(&self, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u64;
        let update = MapUpdate {
            map: self.0.as_raw_fd(),
            padding: 0,
            key: (&raw const index) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE_ELEM, &update).map(|_| ())
    }

    /// The first page of a shared array.
    pub(crate) fn counters(&self) -> io::Result<SharedCounters> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of others.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.0.as_raw_fd(),
                0,
            )
        };
        let memory = NonNull::new(memory).filter(|memory| memory.as_ptr() != libc::MAP_FAILED);
        let memory = memory.ok_or_else(io::Error::last_os_error)?.cast();
        Ok(SharedCounters { memory })
    }

    /// The number by which instructions name it.
    pub(crate) fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl SharedCounters {
    /// The counter at this place of the page. Panics for one that there is not.
    pub(crate) fn at(&self, index: usize) -> &AtomicU32 {
        assert!(index < PAGE_BYTES / size_of::<AtomicU32>(), "a page has no counter {index}");
        // SAFETY: within the mapping, which lives as long as `self`, is aligned to a page, and whose
        // bits are a valid integer whatever programs write.
        unsafe { self.memory.add(index).as_ref() }
    }
}

impl Drop for SharedCounters {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, of this length, and no reference outlives `self`. It
        // cannot fail.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Loads a program that picks the socket of a reuseport group and gives it to the group of a socket.
///
/// # Errors
///
/// What the kernel says: PermissionDenied without CAP_BPF and CAP_NET_ADMIN, InvalidInput where it
/// has no such programs.
pub(crate) fn attach_reuseport_program(
    socket: BorrowedFd<'_>,
    program: &[Instruction],
) -> io::Result<()> {
    let load = ProgramLoad {
        kind: PROG_TYPE_SK_REUSEPORT,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
    };
    let program = bpf_fd(PROG_LOAD, &load)?;
    let option = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF);
    set_int_option(socket, option, program.as_raw_fd())
}

fn bpf_fd<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the command returned a descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `T` is the front of `union bpf_attr` for the command; the kernel takes the rest for zeros.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<usize> {
    let (pointer, len) = (std::ptr::from_ref(attributes), size_of::<T>());
    // SAFETY: the attributes and all that they point to outlive the call, and the commands used
    // here only read them.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, pointer, len) } as isize)
}

#[repr(C)]
struct MapCreate {
    /// `BPF_MAP_TYPE_...`.
    kind: u32,
    /// Of a key.
    key_bytes: u32,
    /// Of a value.
    value_bytes: u32,
    /// The most entries.
    len: u32,
    /// None.
    flags: u32,
}

#[repr(C)]
struct MapUpdate {
    /// The map's descriptor.
    map: i32,
    /// Zero.
    padding: u32,
    /// Where the key is.
    key: u64,
    /// Where the value is.
    value: u64,
    /// None: the entry is made or replaced.
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    /// `BPF_PROG_TYPE_...`.
    kind: u32,
    /// Of the instructions, 8 bytes each.
    count: u32,
    /// Where they are.
    instructions: u64,
    /// Where its name is, which ends with a zero.
    license: u64,
}

// Of <linux/bpf.h>.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_REUSEPORT_SOCKARRAY: u32 = 20;
const MAP_NO_PREALLOC: u32 = 1;
const MAP_MMAPABLE: u32 = 1 << 10;
const PROG_TYPE_SK_REUSEPORT: u32 = 21;

/// The least page of any machine; a mapping may be of less than a whole page.
const PAGE_BYTES: usize = 4096;
