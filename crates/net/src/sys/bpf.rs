//! bpf(2): maps, memory that one of them shares with this process, and the program of a reuseport
//! group. `program` beside it loads and attaches others.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

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
    /// As an object declares it: `BPF_MAP_TYPE_...` and its flags.
    Declared(u32, u32),
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    /// The kernel's name of it.
    fd: OwnedFd,
    /// Bytes of a key.
    key_bytes: u32,
    /// Bytes of a value.
    value_bytes: u32,
}

/// Memory that a map of one value shares with programs and with other processes.
#[derive(Debug)]
pub struct SharedMemory {
    /// Its begin, at a page.
    memory: NonNull<u8>,
    /// Its length.
    bytes: usize,
}

// SAFETY: it owns the mapping, and its atomics may be used from any thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

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
            MapKind::Declared(kind, flags) => (kind, flags),
        };
        let fd = bpf_fd(MAP_CREATE, &MapCreate { kind, key_bytes, value_bytes, len, flags })?;
        Ok(Self { fd, key_bytes, value_bytes })
    }

    /// The map that is pinned at a path; InvalidData where its keys or values have other lengths
    /// than these.
    pub(crate) fn open(path: &CStr, (key_bytes, value_bytes): (u32, u32)) -> io::Result<Self> {
        let fd = open_pinned(path)?;
        let mut info = MapInfo::default();
        let mut question = InfoByFd {
            fd: fd.as_raw_fd(),
            bytes: size_of::<MapInfo>() as u32,
            info: (&raw mut info) as u64,
        };
        bpf(OBJ_GET_INFO_BY_FD, &mut question)?;
        if (info.key_bytes, info.value_bytes) != (key_bytes, value_bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another layout"));
        }
        Ok(Self { fd, key_bytes, value_bytes })
    }

    /// Gives it a name in a file system of type bpf, which keeps it when this process has ended.
    pub(crate) fn pin(&self, path: &CStr) -> io::Result<()> {
        pin(self.fd.as_fd(), path)
    }

    /// Sets the socket at `index` of a map of sockets.
    pub(crate) fn set_socket(&self, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.insert(&index.to_ne_bytes(), &(socket.as_raw_fd() as u64).to_ne_bytes())
    }

    /// Sets the value of a key.
    ///
    /// # Panics
    ///
    /// Where they have other lengths than the map was made with.
    pub(crate) fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert_eq!(value.len(), self.value_bytes as usize, "the map's values have another length");
        bpf(MAP_UPDATE_ELEM, &mut self.element(key, value)).map(|_| ())
    }

    /// Removes a key; NotFound for one that is not there. Panics where it has another length than
    /// the map's.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        bpf(MAP_DELETE_ELEM, &mut self.element(key, &[])).map(|_| ())
    }

    /// Number of its keys now; a system call for each.
    pub(crate) fn len(&self) -> io::Result<usize> {
        let (mut key, mut next) = (Vec::new(), vec![0; self.key_bytes as usize]);
        for count in 0.. {
            let mut question = MapElement {
                map: self.fd.as_raw_fd(),
                padding: 0,
                // The first comes after none.
                key: if count == 0 { 0 } else { key.as_ptr() as u64 },
                value: next.as_mut_ptr() as u64,
                flags: 0,
            };
            match bpf(MAP_GET_NEXT_KEY, &mut question) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(count),
                found => _ = found?,
            }
            key.clone_from(&next);
        }
        unreachable!("a map has an end")
    }

    fn element(&self, key: &[u8], value: &[u8]) -> MapElement {
        assert_eq!(key.len(), self.key_bytes as usize, "the map's keys have another length");
        MapElement {
            map: self.fd.as_raw_fd(),
            padding: 0,
            key: key.as_ptr() as u64,
            value: value.as_ptr() as u64,
            flags: 0,
        }
    }

    /// The first page of a shared array.
    pub(crate) fn counters(&self) -> io::Result<SharedMemory> {
        self.share(PAGE_BYTES)
    }

    /// The first bytes of a shared array. Fails for more than it has.
    pub(crate) fn share(&self, bytes: usize) -> io::Result<SharedMemory> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of others.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.fd.as_raw_fd(),
                0,
            )
        };
        let memory = NonNull::new(memory).filter(|memory| memory.as_ptr() != libc::MAP_FAILED);
        let memory = memory.ok_or_else(io::Error::last_os_error)?.cast();
        Ok(SharedMemory { memory, bytes })
    }

    /// The number by which instructions name it.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl SharedMemory {
    /// The counter at this place. Panics for one that there is not.
    pub(crate) fn at(&self, index: usize) -> &AtomicU32 {
        self.word(index * size_of::<AtomicU32>())
    }

    /// The word at an offset in bytes. Panics past the end, and where it is not aligned.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: any bits are a valid integer, whatever programs write.
        unsafe { self.place::<AtomicU32>(offset).as_ref() }
    }

    /// The two words at an offset in bytes. Panics past the end, and where they are not aligned.
    pub fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: any bits are a valid integer, whatever programs write.
        unsafe { self.place::<AtomicU64>(offset).as_ref() }
    }

    fn place<T>(&self, offset: usize) -> NonNull<T> {
        let is_within = offset.is_multiple_of(size_of::<T>())
            && offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        assert!(is_within, "shared memory of {} bytes has nothing at {offset}", self.bytes);
        // SAFETY: within the mapping, which lives as long as `self` and is aligned to a page.
        unsafe { self.memory.add(offset) }.cast()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, of this length, and no reference outlives `self`. It
        // cannot fail.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// Loads a program that picks the socket of a reuseport group and gives it to the group of a
/// socket.
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

pub(super) fn bpf_fd<T: Attributes>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, &mut attributes.clone())?;
    // SAFETY: the command returned a descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `T` is the front of `union bpf_attr` for the command; the kernel takes the rest for zeros.
pub(super) fn bpf<T: Attributes>(command: libc::c_int, attributes: &mut T) -> io::Result<usize> {
    let (pointer, len) = (std::ptr::from_mut(attributes), size_of::<T>());
    // SAFETY: the attributes and all that they point to outlive the call; the kernel writes within
    // them, where the command answers, and to the buffers whose lengths they give.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, pointer, len) } as isize)
}

/// Opens what is pinned at a path.
pub(super) fn open_pinned(path: &CStr) -> io::Result<OwnedFd> {
    bpf_fd(OBJ_GET, &Pinned { path: path.as_ptr() as u64, fd: 0, flags: 0 })
}

/// Pins a map, a program or a link.
pub(super) fn pin(fd: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    let mut pinned = Pinned { path: path.as_ptr() as u64, fd: fd.as_raw_fd(), flags: 0 };
    bpf(OBJ_PIN, &mut pinned).map(|_| ())
}

/// The front of `union bpf_attr` for a command: integers alone, in C's layout, without gaps.
pub(super) trait Attributes: Clone {}

impl Attributes for MapCreate {}
impl Attributes for MapElement {}
impl Attributes for ProgramLoad {}
impl Attributes for Pinned {}
impl Attributes for InfoByFd {}

#[derive(Clone)]
#[repr(C)]
struct MapCreate {
    /// `BPF_MAP_TYPE_...`.
    kind: u32,
    /// Bytes of a key.
    key_bytes: u32,
    /// Bytes of a value.
    value_bytes: u32,
    /// The most entries.
    len: u32,
    /// None.
    flags: u32,
}

#[derive(Clone)]
#[repr(C)]
struct MapElement {
    /// The map's descriptor.
    map: i32,
    /// Zero.
    padding: u32,
    /// Address of the key.
    key: u64,
    /// Address of the value.
    value: u64,
    /// None: the entry is made or replaced.
    flags: u64,
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
}

#[derive(Clone)]
#[repr(C)]
struct Pinned {
    /// Address of the path, which ends with a zero.
    path: u64,
    /// Descriptor that is pinned; 0 for what is opened.
    fd: i32,
    /// None.
    flags: u32,
}

#[derive(Clone)]
#[repr(C)]
struct InfoByFd {
    /// Descriptor that is asked about.
    fd: i32,
    /// Bytes of the answer.
    bytes: u32,
    /// Address of the buffer for the answer.
    info: u64,
}

/// The front of `struct bpf_map_info`.
#[derive(Default)]
#[repr(C)]
struct MapInfo {
    /// `BPF_MAP_TYPE_...`.
    kind: u32,
    /// The kernel's number of it.
    id: u32,
    /// Bytes of a key.
    key_bytes: u32,
    /// Bytes of a value.
    value_bytes: u32,
}

// Of <linux/bpf.h>.
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_GET_NEXT_KEY: libc::c_int = 4;
const MAP_DELETE_ELEM: libc::c_int = 3;
pub(super) const PROG_LOAD: libc::c_int = 5;
const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_REUSEPORT_SOCKARRAY: u32 = 20;
const MAP_NO_PREALLOC: u32 = 1;
const MAP_MMAPABLE: u32 = 1 << 10;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_TYPE_SK_REUSEPORT: u32 = 21;

/// The least page of any machine; a mapping may be of less than a whole page.
const PAGE_BYTES: usize = 4096;
