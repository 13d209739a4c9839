//! The rule that files of a crate do not import each other in a circle.
//!
//! A file imports another when it names something that is defined there: by `use` or by a path in
//! the code, through whatever re-exports. What a module only declares or re-exports is not defined
//! in it. A file is part of the modules above it, so that what it takes from them (`super::Thing`)
//! makes no circle; nor do tests.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::tree::{Tree, Violation};

/// Refuses files of a crate that import each other, each by some way from each.
pub(super) fn files_import_in_no_circle(tree: &Tree) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for (path, file) in tree.rust() {
        let Some((root, module)) = place_of(path) else { continue };
        // What cannot be parsed is refused by the rules of functions.
        let Ok(file) = file else { continue };
        let modules = crates.entry(root).or_default();
        modules.add_items(path, &module, &file.items);
        modules.files.push((path.to_owned(), module, file));
    }
    crates.values().flat_map(|modules| circles(&modules.imports())).collect()
}

/// A path of a module, from the root of its crate, or one in the code.
type ModulePath = Vec<String>;

/// Names that a file takes from others, by their paths: a line and the names.
type Imports = BTreeMap<String, BTreeMap<String, (usize, BTreeSet<String>)>>;

/// The modules of one crate.
#[derive(Default)]
struct Modules<'a> {
    by_path: BTreeMap<ModulePath, Module>,
    /// Path, module and content of every file.
    files: Vec<(String, ModulePath, &'a syn::File)>,
}

/// Meanings of the names of a module.
#[derive(Default)]
struct Module {
    /// The file that the module is written in.
    file: String,
    /// Names of items that are defined here.
    defined: BTreeSet<String>,
    /// Names that `use` brings, and the paths that it brings them from.
    used: BTreeMap<String, ModulePath>,
    /// Paths of modules of which `use` brings everything.
    globs: Vec<ModulePath>,
    /// Names of modules that are only for tests.
    tests: BTreeSet<String>,
}

impl Modules<'_> {
    fn add_items(&mut self, file: &str, path: &ModulePath, items: &[syn::Item]) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items {
            if let syn::Item::Mod(inner) = item {
                let name = inner.ident.to_string();
                match &inner.content {
                    _ if is_test(&inner.attrs) => drop(module.tests.insert(name)),
                    Some((_, items)) => self.add_items(file, &within(path, &name), items),
                    None => {}
                }
            } else if let syn::Item::Use(item) = item {
                let mut leaves = Vec::new();
                add_leaves(&item.tree, &mut Vec::new(), &mut leaves);
                for (name, path) in leaves {
                    match name {
                        Some(name) => drop(module.used.insert(name, path)),
                        None => module.globs.push(path),
                    }
                }
            } else {
                module.defined.extend(name_of(item));
            }
        }
        self.by_path.insert(path.clone(), module);
    }

    /// Names that each file takes from which other.
    fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (path, module, file) in &self.files {
            if self.is_test(module) {
                continue;
            }
            let mut survey = Survey { module: module.clone(), paths: Vec::new() };
            survey.visit_file(file);
            for (from, line, taken) in survey.paths {
                let Some((definer, name)) = self.resolve(&from, &taken, DEPTH_MAX) else {
                    continue;
                };
                let Some(other) = self.by_path.get(&definer) else { continue };
                if other.file == *path || module.starts_with(&definer) {
                    continue;
                }
                let taken = imports.entry(path.clone()).or_default().entry(other.file.clone());
                taken.or_insert((line, BTreeSet::new())).1.insert(name);
            }
        }
        imports
    }

    /// True if a module, or one above it, is declared as one for tests.
    fn is_test(&self, path: &ModulePath) -> bool {
        (0..path.len()).any(|depth| {
            let above = self.by_path.get(&path[..depth]);
            above.is_some_and(|above| above.tests.contains(&path[depth]))
        })
    }

    /// The module that defines what a path in `from` names, and the name it has there; `None` for
    /// other crates, modules, and generic parameters.
    fn resolve(
        &self,
        from: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<(ModulePath, String)> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Some(Vec::new()),
            "self" => Some(from.clone()),
            "super" => Some(from[..from.len().checked_sub(1)?].to_vec()),
            _ => None,
        };
        if let Some(start) = start {
            return self.resolve(&start, rest, depth);
        }
        let here = self.by_path.get(from)?;
        if here.defined.contains(first) {
            return Some((from.clone(), first.clone()));
        }
        let child = within(from, first);
        if self.by_path.contains_key(&child) {
            return self.resolve(&child, rest, depth);
        }
        if let Some(origin) = here.used.get(first) {
            // A name that comes from a crate of that name is no name of this one.
            let whole: ModulePath = origin.iter().chain(rest).cloned().collect();
            return if origin == path { None } else { self.resolve(from, &whole, depth) };
        }
        here.globs.iter().find_map(|glob| {
            let whole: ModulePath = glob.iter().chain(path).cloned().collect();
            self.resolve(from, &whole, depth)
        })
    }
}

/// The paths that a file names, with the modules of the file that they stand in and their lines.
struct Survey {
    module: ModulePath,
    paths: Vec<(ModulePath, usize, ModulePath)>,
}

impl<'ast> Visit<'ast> for Survey {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(inner) if is_test(&inner.attrs) => {}
            syn::Item::Fn(inner) if is_test(&inner.attrs) => {}
            syn::Item::Impl(inner) if is_test(&inner.attrs) => {}
            syn::Item::Use(inner) if is_test(&inner.attrs) => {}
            syn::Item::Mod(inner) => {
                self.module.push(inner.ident.to_string());
                visit::visit_item(self, item);
                self.module.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A re-export is no use of what it passes on.
        if !matches!(item.vis, syn::Visibility::Inherited) {
            return;
        }
        let mut leaves = Vec::new();
        add_leaves(&item.tree, &mut Vec::new(), &mut leaves);
        let line = item.use_token.span.start().line;
        let paths = leaves.into_iter().map(|(_, path)| (self.module.clone(), line, path));
        self.paths.extend(paths);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A single name was brought by `use`, or is of this module.
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let line = path.segments[0].ident.span().start().line;
            self.paths.push((self.module.clone(), line, names));
        }
        visit::visit_path(self, path);
    }
}

/// One violation for each set of files that reach each other.
fn circles(imports: &Imports) -> Vec<Violation> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|file| (file.as_str(), reach(imports, file))).collect();
    let mut violations = Vec::new();
    for (file, reach) in &reached {
        let is_in_circle =
            |other: &&str| reached.get(other).is_some_and(|back| back.contains(file));
        let circle: BTreeSet<&str> = reach.iter().copied().filter(is_in_circle).collect();
        // The first file of a circle tells of it.
        if circle.first() != Some(file) {
            continue;
        }
        let ties = circle.iter().flat_map(|from| {
            let inside = imports[*from].iter().filter(|(to, _)| circle.contains(to.as_str()));
            inside.map(move |(to, (_, names))| {
                let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                format!("{from} takes {names} from {to}")
            })
        });
        let message = format!("files import in a circle: {}", ties.collect::<Vec<_>>().join("; "));
        let (line, _) = imports[*file]
            .iter()
            .find(|(to, _)| circle.contains(to.as_str()))
            .map_or((1, ""), |(to, (line, _))| (*line, to));
        violations.push(Violation::new(file, line, message));
    }
    violations
}

/// Every file that a file imports, by whatever way; itself only in a circle.
fn reach<'a>(imports: &'a Imports, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

/// The source folder of a file's crate, and the file's module; `None` outside of a crate's source.
fn place_of(path: &str) -> Option<(&str, ModulePath)> {
    let end = path.find("/src/")? + "/src/".len();
    let (root, rest) = path.split_at(end);
    let mut module: ModulePath = rest.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if matches!(module.last()?.as_str(), "mod" | "lib" | "main") {
        module.pop();
    }
    Some((root, module))
}

/// The leaves of a `use`: the name that each brings, `None` for everything, and its path.
fn add_leaves(
    tree: &syn::UseTree,
    path: &mut ModulePath,
    leaves: &mut Vec<(Option<String>, ModulePath)>,
) {
    let add = |name: &syn::Ident, bound: &syn::Ident, path: &ModulePath| {
        let (name, bound) = (name.to_string(), bound.to_string());
        if name == "self" {
            let bound = if bound == "self" { path.last().cloned() } else { Some(bound) };
            return (bound.or(Some(String::new())), path.clone());
        }
        (Some(bound), within(path, &name))
    };
    match tree {
        syn::UseTree::Path(step) => {
            path.push(step.ident.to_string());
            add_leaves(&step.tree, path, leaves);
            path.pop();
        }
        syn::UseTree::Name(leaf) => leaves.push(add(&leaf.ident, &leaf.ident, path)),
        syn::UseTree::Rename(leaf) => leaves.push(add(&leaf.ident, &leaf.rename, path)),
        syn::UseTree::Glob(_) => leaves.push((None, path.clone())),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|item| add_leaves(item, path, leaves));
        }
    }
}

/// The name that an item defines.
fn name_of(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// True if an item is only there for tests.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg") && list.is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

fn within(path: &[String], name: &str) -> ModulePath {
    let mut inner = path.to_vec();
    inner.push(name.to_owned());
    inner
}

/// Steps of a path and re-exports that are followed: bounds names that stand for themselves.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// The files whose circles are refused.
    fn check<const COUNT: usize>(files: [(&str, &str); COUNT]) -> Vec<String> {
        let place = |(path, text): (&str, &str)| (format!("crates/a/src/{path}"), text.to_owned());
        let owned = files.map(place);
        let tree = Tree::from(owned.each_ref().map(|(path, text)| (path.as_str(), text.as_str())));
        let violations = files_import_in_no_circle(&tree);
        let name = |violation: &Violation| violation.path["crates/a/src/".len()..].to_owned();
        violations.iter().map(name).collect()
    }

    #[test]
    fn one_file_that_imports_another_passes() {
        let lib = ("lib.rs", "mod b;\nmod c;\n");
        assert!(check([lib, ("b.rs", "use crate::c::C;"), ("c.rs", "pub struct C;")]).is_empty());
    }

    #[test]
    fn two_files_that_import_each_other_are_refused() {
        let b = ("b.rs", "use crate::c::C;\npub struct B;");
        let c = ("c.rs", "use super::b::B;\npub struct C;");
        assert_eq!(check([("lib.rs", "mod b;\nmod c;\n"), b, c]), ["b.rs"]);
    }

    #[test]
    fn three_files_in_a_circle_are_refused() {
        let b = ("b.rs", "use crate::c::C;\npub struct B;");
        let c = ("c.rs", "use crate::d::D;\npub struct C;");
        let d = ("d.rs", "use crate::b::{B as Other};\npub struct D;");
        assert_eq!(check([("lib.rs", "mod b;\nmod c;\nmod d;\n"), b, c, d]), ["b.rs"]);
    }

    #[test]
    fn a_path_in_the_code_is_an_import() {
        let b = ("b.rs", "use crate::c;\npub struct B;\nfn f() { c::g() }");
        let c = ("c.rs", "pub fn g() { let _ = crate::b::B; }");
        assert_eq!(check([("lib.rs", "mod b;\nmod c;\n"), b, c]), ["b.rs"]);
    }

    #[test]
    fn a_re_export_stands_for_where_the_name_is_defined() {
        let lib = ("lib.rs", "mod b;\nmod c;\npub use self::b::B;\npub use c::*;\n");
        let b = ("b.rs", "use crate::C;\npub struct B;");
        let c = ("c.rs", "use super::B;\npub struct C;");
        assert_eq!(check([lib, b, c]), ["b.rs"]);
    }

    #[test]
    fn a_parent_that_only_passes_on_makes_no_circle() {
        let lib = ("lib.rs", "mod b;\nmod c;\npub use self::b::B;\npub use self::c::C;\n");
        assert!(
            check([lib, ("b.rs", "use crate::C;\npub struct B;"), ("c.rs", "pub struct C;")])
                .is_empty()
        );
    }

    #[test]
    fn what_a_file_takes_from_the_modules_above_it_makes_no_circle() {
        let lib = ("lib.rs", "mod b;\nuse b::B;\npub struct A;");
        assert!(check([lib, ("b.rs", "use super::A;\npub struct B;")]).is_empty());
    }

    #[test]
    fn imports_of_tests_make_no_circle() {
        let b = ("b.rs", "use crate::c::C;\npub struct B;\n#[cfg(test)]\nmod tests;");
        let c = ("c.rs", "pub struct C;\n#[cfg(test)]\nmod tests { use crate::b::B; }");
        let tests = ("b/tests.rs", "use crate::c::C;");
        assert!(check([("lib.rs", "mod b;\nmod c;\n"), b, c, tests]).is_empty());
    }
}
