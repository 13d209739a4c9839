//! The rule that each field of the structs of placement, proto and net says its unit and invariant.

use syn::visit::{self, Visit};

use crate::tree::{Tree, Violation};

/// Refuses a named field without a doc in the source of placement, proto and net, tests apart.
pub(super) fn fields_have_docs(tree: &Tree) -> Vec<Violation> {
    fields_are_said(tree, WITHOUT_DOCS)
}

/// As [`fields_have_docs`], but for the files in `allowed`; one that needs no allowance is refused
/// in it.
fn fields_are_said(tree: &Tree, allowed: &[&str]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut unused = allowed.to_vec();
    for (path, file) in tree.rust() {
        let is_source = SOURCES.iter().any(|source| path.starts_with(source));
        // What cannot be parsed is refused by the rules of functions.
        let Some(file) = file.as_ref().ok().filter(|_| is_source && !is_test(path)) else {
            continue;
        };
        let mut survey = Survey::default();
        survey.visit_file(file);
        if allowed.contains(&path) {
            unused.retain(|unused| *unused != path || survey.silent.is_empty());
            continue;
        }
        violations.extend(survey.silent.into_iter().map(|(line, name)| {
            Violation::new(path, line, format!("field `{name}` has no doc: its unit and invariant"))
        }));
    }
    violations.extend(unused.into_iter().map(|path| {
        Violation::new(path, 1, "each field has its doc: take the file off WITHOUT_DOCS")
    }));
    violations
}

/// Lines and names of fields without a doc.
#[derive(Default)]
struct Survey {
    silent: Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for Survey {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let syn::Fields::Named(fields) = &item.fields else { return };
        for field in &fields.named {
            let has_doc = field.attrs.iter().any(|attribute| attribute.path().is_ident("doc"));
            let name = field.ident.as_ref().filter(|_| !has_doc);
            self.silent.extend(name.map(|name| (name.span().start().line, name.to_string())));
        }
    }
}

/// True if a file of a crate's source holds tests.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

const SOURCES: &[&str] = &["crates/net/src/", "crates/placement/src/", "crates/proto/src/"];

/// Files with fields that have none: this list only shrinks.
const WITHOUT_DOCS: &[&str] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/net/src/a.rs";

    /// The lines that the rule refuses.
    fn check(path: &str, text: &str, allowed: &[&str]) -> Vec<usize> {
        let violations = fields_are_said(&Tree::from([(path, text)]), allowed);
        violations.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_field_without_a_doc_is_refused() {
        let text = "struct A {\n/// Bytes.\na: u8,\nb: u8 }\nstruct B(u8);";
        assert_eq!(check(PATH, text, &[]), [4]);
    }

    #[test]
    fn fields_of_tests_and_other_crates_pass() {
        assert_eq!(check(PATH, "mod tests { struct A { a: u8 } }", &[]), [0_usize; 0]);
        assert_eq!(check("crates/net/src/a/tests.rs", "struct A { a: u8 }", &[]), [0_usize; 0]);
        assert_eq!(check("crates/cli/src/a.rs", "struct A { a: u8 }", &[]), [0_usize; 0]);
    }

    #[test]
    fn an_allowance_lasts_as_long_as_it_is_needed() {
        assert_eq!(check(PATH, "struct A { a: u8 }", &[PATH]), [0_usize; 0]);
        assert_eq!(check(PATH, "\nstruct A;", &[PATH]), [1]);
        assert_eq!(check("crates/net/src/b.rs", "", &[PATH]), [1]);
    }
}
