//! `cargo xtask dissectors`: the tables of the dissectors for Wireshark, written from crates/wire.
//!
//! Each Lua file has a block between [`BEGIN`] and [`END`] that is this command's: constants, the
//! numbers of enumerations, where each field of a header is, the names that a packet's line has and
//! why bytes are no packet. The rest of the file, which decides and shows, is written by hand.
//!
//! Invariant: the block depends on the sources alone, so that `tidy` can refuse one that is stale.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Attribute, Expr, Fields, ImplItem, Item, Lit, Meta, Type};

use crate::tree::{Tree, Violation};

/// Writes the block of each dissector.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    for (path, sources) in DISSECTORS {
        let text = tree.text(path).with_context(|| format!("{path} is missing"))?;
        fs::write(root.join(path), written(&tree, path, text, sources)?)?;
    }
    Ok(())
}

/// Lists the dissectors whose block is not what the command would write.
pub(crate) fn stale(tree: &Tree) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for (path, sources) in DISSECTORS {
        let Some(text) = tree.text(path) else { continue };
        if written(tree, path, text, sources)? != text {
            violations.push(Violation::new(path, 1, "stale: run `cargo xtask dissectors`"));
        }
    }
    Ok(violations)
}

/// A dissector with the block that its sources ask for.
fn written(tree: &Tree, path: &str, text: &str, sources: &str) -> Result<String> {
    let marked = || format!("{path} lacks its marks");
    let (before, rest) = text.split_once(BEGIN).with_context(marked)?;
    let (_, after) = rest.split_once(END).with_context(marked)?;
    let mut wire = Wire::read(tree, sources)?;
    if tree.holds(REFUSALS) && !REFUSALS.starts_with(sources) {
        let items = tree.items(REFUSALS)?;
        let is_meant =
            |item: &&Item| matches!(item, Item::Enum(item) if item.ident == "DropReason");
        items.iter().filter(is_meant).for_each(|item| wire.describe(item));
    }
    let Wire { constants, tables, .. } = wire;
    let lines = [vec![wrapped(&constants, "    ")], tables].concat().join("\n");
    Ok(format!("{before}{BEGIN}\nlocal wire = {{\n{lines}\n}}\n{END}{after}"))
}

/// Declarations of the sources so far.
#[derive(Default)]
pub(crate) struct Wire {
    /// The headers and numbers, in the order of the sources.
    pub(crate) items: Vec<WireItem>,
    /// Values of constants, those of a type or module behind its name.
    values: BTreeMap<String, u64>,
    /// Bytes of each header.
    sizes: BTreeMap<String, u64>,
    /// Constants of the protocol, as members of a table.
    constants: Vec<String>,
    /// Whole tables.
    tables: Vec<String>,
}

/// A header or a set of numbers.
pub(crate) enum WireItem {
    /// A header: its name, its bytes and its fields.
    Layout(String, u64, Vec<WireField>),
    /// Numbers of an enumeration, a type or a module, by name.
    Numbers(String, Vec<(String, u64)>),
}

/// A field of a header.
pub(crate) struct WireField {
    pub(crate) name: String,
    /// The type as Rust names it, of an array that of its elements.
    pub(crate) kind: String,
    /// Elements of an array.
    pub(crate) count: Option<u64>,
    /// Bytes before it.
    offset: u64,
    /// Bytes of it.
    size: u64,
}

impl Wire {
    /// Reads the files of a folder that say how packets look.
    pub(crate) fn read(tree: &Tree, sources: &str) -> Result<Self> {
        let mut wire = Self::default();
        let mut files = Vec::new();
        for name in FILES {
            let path = format!("{sources}/{name}.rs");
            if tree.holds(&path) {
                files.push(tree.items(&path)?);
            }
        }
        // Layouts are as long as constants say that stand below them.
        files.iter().copied().flatten().for_each(|item| wire.learn(item));
        files.iter().copied().flatten().for_each(|item| wire.describe(item));
        Ok(wire)
    }

    /// The constants that belong to no type and no module.
    pub(crate) fn constants(&self) -> impl Iterator<Item = (&str, u64)> {
        let values = self.values.iter().filter(|(name, _)| !name.contains('.'));
        values.map(|(name, &value)| (name.as_str(), value))
    }

    /// Takes up the constants of an item.
    fn learn(&mut self, item: &Item) {
        match item {
            Item::Const(item) => {
                let name = item.ident.to_string();
                if let Some(value) = self.note(name.clone(), &item.expr, "") {
                    self.constants.push(format!("{name} = {value}"));
                }
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let owner = last_segment(&item.self_ty);
                for item in &item.items {
                    if let ImplItem::Const(item) = item {
                        self.note(format!("{owner}.{}", item.ident), &item.expr, &owner);
                    }
                }
            }
            Item::Mod(module) => {
                for item in module.content.iter().flat_map(|(_, items)| items) {
                    if let Item::Const(item) = item {
                        let owner = module.ident.to_string();
                        self.note(format!("{owner}.{}", item.ident), &item.expr, &owner);
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds the table of an item that has one.
    fn describe(&mut self, item: &Item) {
        let table = match item {
            Item::Struct(item) if is_layout(&item.attrs) => {
                let name = item.ident.to_string();
                self.layout(&item.fields).map(|(len, fields)| {
                    self.sizes.insert(name.clone(), len);
                    let place = |WireField { name, offset, size, .. }: &WireField| {
                        format!("{name} = {{ {offset}, {size} }}")
                    };
                    let members = fields.iter().map(place).collect();
                    self.items.push(WireItem::Layout(name.clone(), len, fields));
                    (name, [vec![format!("len = {len}")], members].concat())
                })
            }
            Item::Enum(item) => {
                let numbers = item.variants.iter().filter_map(|variant| {
                    let (_, value) = variant.discriminant.as_ref()?;
                    Some((variant.ident.to_string(), self.value(value, "")?))
                });
                let numbers = numbers.collect();
                self.items.push(WireItem::Numbers(item.ident.to_string(), numbers));
                Some((item.ident.to_string(), self.variants(item)))
            }
            Item::Impl(item) if item.trait_.is_none() => self.flags(&last_segment(&item.self_ty)),
            Item::Mod(item) => self.flags(&item.ident.to_string()),
            Item::Fn(item) if item.sig.ident == "name" => {
                Some(("names".to_owned(), named(&item.block)))
            }
            _ => None,
        };
        if let Some((name, members)) = table.filter(|(_, members)| !members.is_empty()) {
            self.tables
                .push(format!("    {name} = {{\n{}\n    }},", wrapped(&members, "        ")));
        }
    }

    /// The fields, and the length of all.
    fn layout(&self, fields: &Fields) -> Option<(u64, Vec<WireField>)> {
        let (mut len, mut members) = (0, Vec::new());
        for field in fields {
            let size = self.size(&field.ty)?;
            let name = field.ident.as_ref()?.to_string();
            let (element, count) = match &field.ty {
                Type::Array(array) => (&*array.elem, Some(self.value(&array.len, "")?)),
                single => (single, None),
            };
            let kind = last_segment(element);
            members.push(WireField { name, kind, count, offset: len, size });
            len += size;
        }
        Some((len, members))
    }

    /// The number of each variant; of reasons, what their docs say.
    fn variants(&self, item: &syn::ItemEnum) -> Vec<String> {
        let member = |variant: &syn::Variant| {
            let value = match &variant.discriminant {
                Some((_, value)) => self.value(value, "")?.to_string(),
                None if item.ident == "Malformed" => format!("{:?}", first_sentence(variant)),
                None => return None,
            };
            Some(format!("{} = {value}", variant.ident))
        };
        item.variants.iter().filter_map(member).collect()
    }

    /// The constants of a type or module that is no header.
    fn flags(&mut self, owner: &str) -> Option<(String, Vec<String>)> {
        let of_owner = |(name, value): (&String, &u64)| {
            Some((name.strip_prefix(owner)?.strip_prefix('.')?.to_owned(), *value))
        };
        let is_new = !self.sizes.contains_key(owner)
            && !self.tables.iter().any(|table| table.starts_with(&format!("    {owner} = {{")));
        if !is_new {
            return None;
        }
        let numbers: Vec<_> = self.values.iter().filter_map(of_owner).collect();
        let members = numbers.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        self.items.push(WireItem::Numbers(owner.to_owned(), numbers));
        Some((owner.to_owned(), members))
    }

    fn note(&mut self, name: String, expr: &Expr, owner: &str) -> Option<u64> {
        let value = self.value(expr, owner)?;
        self.values.insert(name, value);
        Some(value)
    }

    /// The value of a constant, where it is made of numbers and other constants.
    fn value(&self, expr: &Expr, owner: &str) -> Option<u64> {
        match expr {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => number.base10_parse().ok(),
                _ => None,
            },
            Expr::Path(path) => {
                let segments = path.path.segments.iter().map(|segment| segment.ident.to_string());
                let name =
                    segments.collect::<Vec<_>>().join(".").replace("Self.", &format!("{owner}."));
                let own = format!("{owner}.{name}");
                let known = || self.values.get(&name).or_else(|| self.values.get(&own)).copied();
                if name == "u32.MAX" { Some(u32::MAX.into()) } else { known() }
            }
            Expr::Cast(cast) => self.value(&cast.expr, owner),
            Expr::Binary(binary) => {
                let (left, right) =
                    (self.value(&binary.left, owner)?, self.value(&binary.right, owner)?);
                match binary.op {
                    syn::BinOp::BitOr(_) => Some(left | right),
                    syn::BinOp::Mul(_) => Some(left * right),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Bytes of a field.
    fn size(&self, kind: &Type) -> Option<u64> {
        if let Type::Array(array) = kind {
            return Some(self.size(&array.elem)? * self.value(&array.len, "")?);
        }
        match last_segment(kind).as_str() {
            "u8" => Some(1),
            "U16" => Some(2),
            "U32" => Some(4),
            "U64" => Some(8),
            name => self.sizes.get(name).copied(),
        }
    }
}

/// The name that a packet's line has for each number, from the arms of a match.
fn named(block: &syn::Block) -> Vec<String> {
    let Some(syn::Stmt::Expr(Expr::Match(matched), _)) = block.stmts.first() else {
        return Vec::new();
    };
    let member = |arm: &syn::Arm| match (&arm.pat, &*arm.body) {
        (syn::Pat::Path(path), Expr::Lit(literal)) => match &literal.lit {
            Lit::Str(name) => {
                Some(format!("{} = {:?}", path.path.segments.last()?.ident, name.value()))
            }
            _ => None,
        },
        _ => None,
    };
    matched.arms.iter().filter_map(member).collect()
}

/// The first sentence of a doc, without its mark-up and its end.
fn first_sentence(variant: &syn::Variant) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    let text: String = variant.attrs.iter().filter_map(line).collect();
    let text = text.trim().replace('`', "");
    let sentence = text.split(". ").next().unwrap_or_default().trim_end_matches('.');
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn is_layout(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("repr"))
}

fn last_segment(kind: &Type) -> String {
    let Type::Path(path) = kind else { return String::new() };
    path.path.segments.last().map_or_else(String::new, |segment| segment.ident.to_string())
}

/// Members of a table in lines of a bounded width.
fn wrapped(members: &[String], indent: &str) -> String {
    let mut lines = vec![String::new()];
    for member in members {
        if lines.last().is_some_and(|line| line.len() + member.len() > WIDTH) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            let gap = if line.is_empty() { indent } else { " " };
            line.push_str(&format!("{gap}{member},"));
        }
    }
    lines.join("\n")
}

/// The dissectors, and the folder that each is written from.
const DISSECTORS: [(&str, &str); 3] = [
    ("tools/wireshark/r2p2.lua", "crates/wire/src/r2p2"),
    ("tools/wireshark/homa.lua", "crates/wire/src/homa"),
    ("tools/wireshark/netclone.lua", "crates/wire/src/netclone"),
];
/// The files of a folder that say how packets look, in the order of their tables.
const FILES: [&str; 5] = ["mod", "header", "hijack", "packet", "display"];
/// Source file of the reasons of refusals, which all protocols share.
const REFUSALS: &str = "crates/wire/src/r2p2/header.rs";
const BEGIN: &str = "-- Written by `cargo xtask dissectors` from crates/wire, up to the next mark.";
const END: &str = "-- Written by hand again.";
const WIDTH: usize = 110;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_places_of_its_fields() {
        let source = "pub const N: usize = 2;
            #[repr(C)] pub struct Inner { pub id: U64, pub port: U16 }
            #[repr(C)] pub struct Outer { pub one: u8, pub all: [Inner; N], pub rest: [u8; Bits::LEN] }
            impl Bits { pub const LEN: usize = 3; pub const TWICE: u8 = Self::LEN as u8 * 2; }
            #[repr(u8)] pub enum Kind { A = 0x10, B = 17 }
            pub enum Malformed { /// Too `short`. And more.\n Short }";
        let file = format!("a\n{BEGIN}\nold\n{END}\nz\n");
        let tree = Tree::from([("w/mod.rs", source)]);
        let written = written(&tree, "a.lua", &file, "w").expect("it is marked");
        for part in [
            "N = 2,",
            "len = 10, id = { 0, 8 }, port = { 8, 2 },",
            "len = 24, one = { 0, 1 }, all = { 1, 20 }, rest = { 21, 3 },",
            "LEN = 3, TWICE = 6,",
            "A = 16, B = 17,",
            "Short = \"too short\",",
        ] {
            assert!(written.contains(part), "{part}: {written}");
        }
        assert!(
            written.starts_with("a\n") && written.ends_with("\nz\n") && !written.contains("old")
        );
    }
}
