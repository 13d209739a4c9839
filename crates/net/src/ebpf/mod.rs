//! Programs that run in the kernel, before its network stack sees a packet (XDP).
//!
//! An [`Object`] is what `cargo xtask ebpf` has compiled of a file in `ebpf/`, with its maps made
//! and its programs taken by the kernel's verifier. A program can be tried on a packet
//! ([`Object::test`]) or [attached](Object::attach) to an interface.
//!
//! Invariant: what is attached is detached when its [`Attached`] is dropped or the process dies,
//! unless it was pinned.

mod address;
pub mod cloner;
mod elf;
pub mod router;

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use crate::sys::{self, Instruction, Link, Map, MapKind, Program};
pub use crate::sys::{SharedMemory, Tested, Verdict};

/// `ebpf/pass.bpf.c`: passes every packet on.
pub const PASS: &[u8] = include_bytes!("objects/pass.bpf.o");

/// `ebpf/direct.bpf.c`: directs packets to AF_XDP sockets.
pub(crate) const DIRECT: &[u8] = include_bytes!("objects/direct.bpf.o");

/// A loaded object.
#[derive(Debug)]
pub struct Object {
    /// The programs by the names of their functions.
    programs: Vec<(String, Program)>,
    /// The maps by name.
    maps: Vec<(String, Map)>,
    /// The global variables, where there are some.
    variables: Option<Map>,
    /// Their length.
    variables_bytes: u32,
}

/// Mode of a program: where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// Behind the driver, in the kernel: on every interface, and slower on a fast one.
    Generic,
}

/// A program at an interface.
#[derive(Debug)]
pub struct Attached {
    /// Detaches with its drop.
    link: Link,
}

impl Object {
    /// Makes the maps and loads the programs of an object.
    ///
    /// # Errors
    ///
    /// Unsupported, with what the kernel lacks or refuses; PermissionDenied, naming the
    /// capabilities.
    pub fn load(bytes: &[u8]) -> io::Result<Self> {
        Self::load_from(bytes, None)
    }

    /// Loads it with the maps and variables that an earlier load has pinned in a folder of a file
    /// system of type bpf; those that are not there are pinned there.
    ///
    /// # Errors
    ///
    /// InvalidData where what is pinned has another layout; else as [`Object::load`].
    pub fn load_pinned(bytes: &[u8], folder: &Path) -> io::Result<Self> {
        Self::load_from(bytes, Some(folder))
    }

    fn load_from(bytes: &[u8], folder: Option<&Path>) -> io::Result<Self> {
        let declared = elf::read(bytes).ok_or_else(|| error("no object of the BPF target"))?;
        let mut maps = Vec::new();
        for map in &declared.maps {
            let [kind, key_bytes, value_bytes, len, flags] = map.fields;
            let lens = (key_bytes, value_bytes);
            let make = || Map::new(MapKind::Declared(kind, flags), lens, len);
            let made = open_map(folder, (map.name, lens), make);
            let made = made.map_err(|error| explain(error, "maps"))?;
            maps.push((map.name.to_owned(), made));
        }
        let variables_bytes = declared.variables_bytes;
        let lens = (4, variables_bytes);
        let make = || Map::new(MapKind::SharedArray, lens, 1);
        let variables = (variables_bytes > 0).then(|| open_map(folder, (VARIABLES, lens), make));
        let variables = variables.transpose();
        let variables =
            variables.map_err(|error| explain(error, "maps that processes share memory with"))?;
        let license = CStr::from_bytes_with_nul(declared.license);
        let license = license.map_err(|_| error("an object without a license"))?;
        let mut programs = Vec::new();
        for program in &declared.programs {
            let mut text = instructions(program.text);
            for &used in &program.uses {
                let map = used.map.map_or(variables.as_ref(), |index| Some(&maps[index].1));
                name_map(&mut text, used, map).ok_or_else(|| error("a use of no map"))?;
            }
            let loaded = Program::load(&text, (license, program.kind));
            programs
                .push((program.name.to_owned(), loaded.map_err(|e| explain(e, "XDP programs"))?));
        }
        Ok(Self { programs, maps, variables, variables_bytes })
    }

    /// Runs a program on a packet, which begins with its Ethernet header, and returns what it has
    /// made of it. With `repeat` above 1 each run takes what the one before has left.
    ///
    /// # Errors
    ///
    /// NotFound for a name that it has not; else what the kernel says.
    pub fn test(&self, name: &str, packet: &[u8], repeat: u32) -> io::Result<Tested> {
        self.program(name)?.test(packet, repeat)
    }

    /// Attaches a program to an interface.
    ///
    /// # Errors
    ///
    /// NotFound for a name that it has not; else with what stands in the way: the driver, another
    /// program, a capability.
    pub fn attach(&self, name: &str, interface: u32, mode: Mode) -> io::Result<Attached> {
        let attached = self.program(name)?.attach(interface, mode == Mode::Native);
        let link = attached.map_err(|error| explain_attach(error, mode))?;
        Ok(Attached { link })
    }

    /// Sets a socket of AF_XDP in a map of those.
    ///
    /// # Errors
    ///
    /// NotFound for a map that it has not; else what the kernel says.
    pub(crate) fn set_socket(
        &self,
        map: &str,
        index: u32,
        socket: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.insert(map, &index.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Sets the value of a key of a map. Panics where they have other lengths than the map's.
    ///
    /// # Errors
    ///
    /// NotFound for a map that it has not; else what the kernel says: ArgumentListTooLong of one
    /// that is full.
    pub fn insert(&self, map: &str, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.map(map)?.insert(key, value)
    }

    /// Sets an entry of a map of devices: an interface, and the program that redirected packets run
    /// through at their egress there.
    ///
    /// # Errors
    ///
    /// NotFound for a map or a program that it has not; else what the kernel says.
    pub(crate) fn set_device(
        &self,
        (map, index): (&str, u32),
        (interface, program): (u32, &str),
    ) -> io::Result<()> {
        let program = self.program(program)?.number().to_ne_bytes();
        let value = [interface.to_ne_bytes(), program].concat();
        self.insert(map, &index.to_ne_bytes(), &value)
    }

    /// Removes a key of a map. Panics where it has another length than the map's.
    ///
    /// # Errors
    ///
    /// NotFound for a map that it has not, or a key that the map has not.
    pub fn remove(&self, map: &str, key: &[u8]) -> io::Result<()> {
        self.map(map)?.remove(key)
    }

    /// Number of keys in a map now; a system call for each.
    ///
    /// # Errors
    ///
    /// NotFound for a map that it has not; else what the kernel says.
    pub fn keys_len(&self, map: &str) -> io::Result<usize> {
        self.map(map)?.len()
    }

    /// The programs' global variables, as memory that this process shares with them.
    ///
    /// # Errors
    ///
    /// NotFound where there are none; else what the kernel says.
    pub fn variables(&self) -> io::Result<SharedMemory> {
        let none = || io::Error::from(io::ErrorKind::NotFound);
        self.variables.as_ref().ok_or_else(none)?.share(self.variables_bytes as usize)
    }

    fn map(&self, name: &str) -> io::Result<&Map> {
        let found = self.maps.iter().find(|(known, _)| known == name);
        found.map(|(_, map)| map).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn program(&self, name: &str) -> io::Result<&Program> {
        let found = self.programs.iter().find(|(known, _)| known == name);
        found.map(|(_, program)| program).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Attached {
    /// Keeps it attached when this process has ended, under a name in a file system of type bpf.
    ///
    /// # Errors
    ///
    /// What the kernel says of the path; AlreadyExists for one that is taken.
    pub fn pin(&self, path: &Path) -> io::Result<()> {
        self.link.pin(&c_path(path)?)
    }

    /// Opens what is pinned at a path.
    ///
    /// # Errors
    ///
    /// NotFound where nothing is; else what the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Link::open(&c_path(path)?).map(|link| Self { link })
    }

    /// Puts another program in its place; no packet comes between.
    ///
    /// # Errors
    ///
    /// NotFound for a name that the object has not; else what the kernel says.
    pub fn replace(&self, object: &Object, name: &str) -> io::Result<()> {
        self.link.replace(object.program(name)?)
    }

    /// Detaches it now, also where it is pinned.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn detach(&self) -> io::Result<()> {
        self.link.detach()
    }
}

/// The number of an interface.
///
/// # Errors
///
/// NotFound for a name that no interface of this network namespace has.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let index = CString::new(name).ok().and_then(|name| sys::interface_index(&name));
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("no interface is named {name}"));
    index.ok_or_else(none)
}

/// Makes a map, or opens it in the folder where it is pinned or is to be.
fn open_map(
    folder: Option<&Path>,
    (name, lens): (&str, (u32, u32)),
    make: impl FnOnce() -> io::Result<Map>,
) -> io::Result<Map> {
    let Some(folder) = folder else {
        return make();
    };
    let path = c_path(&folder.join(name))?;
    match Map::open(&path, lens) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let map = make()?;
            map.pin(&path)?;
            Ok(map)
        }
        opened => opened,
    }
}

/// A path for the kernel.
fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Name under which the map of the global variables is pinned. The file system takes none with a
/// dot.
const VARIABLES: &str = "variables";

fn instructions(text: &[u8]) -> Vec<Instruction> {
    let read = |bytes: &[u8]| Instruction {
        code: bytes[0],
        registers: bytes[1],
        offset: i16::from_le_bytes([bytes[2], bytes[3]]),
        immediate: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    text.chunks_exact(8).map(read).collect()
}

/// Writes a map into the instruction that loads its address, or that of a variable in it.
fn name_map(text: &mut [Instruction], used: elf::Use, map: Option<&Map>) -> Option<()> {
    let number = map?.number();
    let [load, rest] = text.get_mut(used.instruction..used.instruction.checked_add(2)?)? else {
        return None;
    };
    let (destination, kind) =
        (load.registers & 15, if used.map.is_some() { MAP_FD } else { MAP_VALUE });
    if used.map.is_none() {
        rest.immediate = load.immediate.wrapping_add(used.offset as i32);
    }
    load.registers = destination | kind << 4;
    load.immediate = number;
    Some(())
}

/// In the place of an instruction's source register: its constant is a map, or a map whose first
/// value it takes the address of.
const MAP_FD: u8 = 1;
const MAP_VALUE: u8 = 2;

fn error(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Says in words what a refusal of the kernel means for who wants `what`.
fn explain(error: io::Error, what: &str) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidData => error,
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            format!("{what} need the capabilities CAP_BPF and CAP_NET_ADMIN"),
        ),
        _ => {
            let text = format!("the kernel does not take {what}: {error}");
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
    }
}

fn explain_attach(error: io::Error, mode: Mode) -> io::Error {
    let text = match (error.raw_os_error(), mode) {
        (Some(libc::EBUSY | libc::EEXIST), _) => {
            "another XDP program is attached to the interface; `ip link show` names it".to_owned()
        }
        (Some(libc::EPERM), _) => "attaching needs the capability CAP_NET_ADMIN".to_owned(),
        (Some(libc::ERANGE), Mode::Native) => {
            "the interface's MTU is more than its driver takes with XDP: lower it (`ip link set IF mtu N`), or take generic XDP, which is slower".to_owned()
        }
        (Some(libc::EOPNOTSUPP), Mode::Native) => {
            "the interface's driver has no XDP; generic XDP works without".to_owned()
        }
        _ => format!("the program cannot be attached: {error}"),
    };
    io::Error::new(error.kind(), text)
}
