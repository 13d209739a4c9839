//! An object of clang's BPF target: its programs, its maps, its global variables and where
//! instructions name them.
//!
//! It reads what `cargo xtask ebpf` compiles, ELF for 64 bits in little endian; each section whose
//! name begins with `xdp` is a program, and the section `maps` holds a `struct map` for each map
//! (ebpf/packet.h). The objects are part of the binary, yet one that is cut off or names what it
//! has not is an error and no panic.

use crate::sys::ProgramKind;

/// Declarations of an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Declared<'a> {
    /// The programs.
    pub(super) programs: Vec<ProgramText<'a>>,
    /// The maps.
    pub(super) maps: Vec<MapText<'a>>,
    /// Bytes of global variables, which begin as zeros; 0 where there are none.
    pub(super) variables_bytes: u32,
    /// The license, which ends with a zero.
    pub(super) license: &'a [u8],
}

/// A program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProgramText<'a> {
    /// The name of its function.
    pub(super) name: &'a str,
    /// Kind of the program by its section's name, as libbpf has it.
    pub(super) kind: ProgramKind,
    /// Its instructions, 8 bytes each.
    pub(super) text: &'a [u8],
    /// Instructions that name something.
    pub(super) uses: Vec<Use>,
}

/// An instruction that names a map or a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Its index.
    pub(super) instruction: usize,
    /// The map, by its index; `None` for the variables.
    pub(super) map: Option<usize>,
    /// Offset of the variable, besides what the instruction adds.
    pub(super) offset: u32,
}

/// A map.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MapText<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// Its `struct map`: kind, bytes of a key and of a value, entries, flags.
    pub(super) fields: [u32; 5],
}

/// Reads an object; `None` where it is none, or asks for what is not read here.
pub(super) fn read(bytes: &[u8]) -> Option<Declared<'_>> {
    Elf::new(bytes)?.declared()
}

/// The parts of an ELF file.
struct Elf<'a> {
    /// The sections, as numbers name them.
    sections: Vec<Section<'a>>,
    /// The symbols, as numbers name them.
    symbols: Vec<Symbol<'a>>,
}

/// A section.
#[derive(Clone, Copy)]
struct Section<'a> {
    /// Its name.
    name: &'a str,
    /// `SHT_...`.
    kind: u32,
    /// The section that a section of relocations is for.
    info: u32,
    /// Bytes that it has when it is loaded, some or all of which may be no part of the file.
    size: u64,
    /// Content in the file.
    content: &'a [u8],
}

/// A symbol.
#[derive(Clone, Copy)]
struct Symbol<'a> {
    /// Its name; of a section none.
    name: &'a str,
    /// It is a function.
    is_function: bool,
    /// The number of the section that it is in.
    section: u16,
    /// Bytes before it there.
    value: u64,
}

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let is_bpf = bytes.starts_with(b"\x7fELF\x02\x01") && half(bytes, 18)? == MACHINE_BPF;
        if !is_bpf {
            return None;
        }
        let (table, count) = (long(bytes, 40)? as usize, usize::from(half(bytes, 60)?));
        let header = |index: usize| bytes.get(table.checked_add(index * 64)?..);
        let names = content(bytes, header(usize::from(half(bytes, 62)?))?)?;
        let section = |index| {
            let header = header(index)?;
            Some(Section {
                name: text(names, word(header, 0)?)?,
                kind: word(header, 4)?,
                info: word(header, 44)?,
                size: long(header, 32)?,
                content: content(bytes, header)?,
            })
        };
        let sections = (0..count).map(section).collect::<Option<Vec<_>>>()?;
        let mut elf = Self { sections, symbols: Vec::new() };
        elf.symbols = elf.read_symbols()?;
        Some(elf)
    }

    fn read_symbols(&self) -> Option<Vec<Symbol<'a>>> {
        let Some(table) = self.sections.iter().find(|section| section.kind == SYMTAB) else {
            return Some(Vec::new());
        };
        // clang keeps the names of symbols and of sections in one table.
        let names = self.section(".strtab")?.content;
        let symbol = |entry: &'a [u8]| {
            Some(Symbol {
                name: text(names, word(entry, 0)?)?,
                is_function: entry[4] & 15 == FUNCTION,
                section: half(entry, 6)?,
                value: long(entry, 8)?,
            })
        };
        table.content.chunks_exact(24).map(symbol).collect()
    }

    fn section(&self, name: &str) -> Option<&Section<'a>> {
        self.sections.iter().find(|section| section.name == name)
    }

    fn index_of(&self, name: &str) -> Option<u16> {
        self.sections.iter().position(|section| section.name == name).map(|index| index as u16)
    }

    fn declared(&self) -> Option<Declared<'a>> {
        let mut declared =
            Declared { license: self.section("license")?.content, ..Declared::default() };
        let variables = self.section(".bss").map_or(0, |section| section.size);
        declared.variables_bytes = u32::try_from(variables).ok()?;
        let maps = self.index_of("maps");
        let mut symbols: Vec<_> =
            self.symbols.iter().filter(|symbol| Some(symbol.section) == maps).collect();
        symbols.retain(|symbol| !symbol.name.is_empty());
        for symbol in &symbols {
            let fields = self.section("maps")?.content.get(symbol.value as usize..)?;
            let field = |index: usize| word(fields, index * 4);
            let fields = [field(0)?, field(1)?, field(2)?, field(3)?, field(4)?];
            declared.maps.push(MapText { name: symbol.name, fields });
        }
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind != PROGBITS || !section.name.starts_with("xdp") {
                continue;
            }
            let function = self.symbols.iter().find(|symbol| {
                symbol.is_function && usize::from(symbol.section) == index && symbol.value == 0
            });
            let uses = self.uses(index as u32, &symbols)?;
            let name = function?.name;
            let kind = ProgramKind {
                takes_parts: section.name.starts_with("xdp.frags"),
                is_egress: section.name.ends_with("/devmap"),
            };
            let text = section.content;
            declared.programs.push(ProgramText { name, kind, text, uses });
        }
        Some(declared)
    }

    /// Maps and variables that the instructions of a section name.
    fn uses(&self, of: u32, maps: &[&Symbol<'a>]) -> Option<Vec<Use>> {
        let relocations =
            self.sections.iter().filter(|section| section.kind == REL && section.info == of);
        let entries = relocations.flat_map(|section| section.content.chunks_exact(16));
        let used = |entry| {
            let (at, info) = (long(entry, 0)? as usize, long(entry, 8)?);
            let symbol = self.symbols.get((info >> 32) as usize)?;
            if info as u32 != MAP_ADDRESS {
                return None;
            }
            let (instruction, offset) = (at / 8, u32::try_from(symbol.value).ok()?);
            if Some(symbol.section) == self.index_of(".bss") {
                return Some(Use { instruction, map: None, offset });
            }
            let map = maps
                .iter()
                .position(|map| (map.section, map.value) == (symbol.section, symbol.value))?;
            Some(Use { instruction, map: Some(map), offset: 0 })
        };
        entries.map(used).collect()
    }
}

/// Bytes of a section in the file.
fn content<'a>(bytes: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    if word(header, 4)? == NOBITS {
        return Some(&[]);
    }
    let (start, len) = (long(header, 24)? as usize, long(header, 32)? as usize);
    bytes.get(start..start.checked_add(len)?)
}

/// A name, which ends with a zero.
fn text(names: &[u8], at: u32) -> Option<&str> {
    let rest = names.get(at as usize..)?;
    let len = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..len]).ok()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

// Of the ELF specification and LLVM's BPF target.
const MACHINE_BPF: u16 = 247;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const NOBITS: u32 = 8;
const REL: u32 = 9;
const FUNCTION: u8 = 2;
/// `R_BPF_64_64`: the address of a map, or of a variable in one.
const MAP_ADDRESS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ebpf::PASS;

    #[test]
    fn the_object_of_two_programs_has_two_instructions_of_each() {
        let declared = read(PASS).expect("an object");
        let [parts, whole] = &declared.programs[..] else { panic!("{declared:?}") };
        for (program, name, takes_parts) in [(parts, "pass", true), (whole, "pass_whole", false)] {
            let found = (program.name, program.text.len(), &program.uses[..]);
            assert_eq!(found, (name, 16, &[][..]));
            assert_eq!(program.kind, ProgramKind { takes_parts, is_egress: false });
        }
        assert_eq!(declared.license, b"Dual MIT/GPL\0");
        assert_eq!((declared.maps.len(), declared.variables_bytes), (0, 0));
    }

    #[test]
    fn an_object_that_is_cut_off_is_none() {
        // The table of sections is at the end, and of the last of them two numbers are not read.
        for len in 0..PASS.len() - 16 {
            assert_eq!(read(&PASS[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn no_byte_makes_it_panic() {
        for index in 0..PASS.len() {
            for bits in [0xff, 0x80, 0x01] {
                let mut bytes = PASS.to_vec();
                bytes[index] ^= bits;
                let _ = read(&bytes);
            }
        }
    }
}
