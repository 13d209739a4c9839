//! Rules for the structs of placement, proto and net: each field says its unit and invariant, and
//! state is in parts that a reader can hold.

use syn::visit::{self, Visit};

use crate::tree::{Tree, Violation};

/// Refuses a named field without a doc in the source of placement, proto and net, tests apart.
pub(super) fn fields_have_docs(tree: &Tree) -> Vec<Violation> {
    let silent = surveys(tree).flat_map(|(path, survey)| {
        survey.silent.into_iter().map(move |(line, name)| (path, line, name))
    });
    let refuse = |(path, line, name)| {
        Violation::new(path, line, format!("field `{name}` has no doc: its unit and invariant"))
    };
    silent.map(refuse).collect()
}

/// Refuses a struct of state with [`FIELDS_MAX`] fields or more there: what many files may touch at
/// once is a struct for each of its parts. Configurations and counters, all of whose fields are
/// public, are lists.
pub(super) fn state_is_in_parts(tree: &Tree) -> Vec<Violation> {
    let large = surveys(tree).flat_map(|(path, survey)| {
        survey.large.into_iter().map(move |(line, name, count)| (path, line, name, count))
    });
    let refuse = |(path, line, name, count)| {
        let message = format!("`{name}` has {count} fields; state has fewer than {FIELDS_MAX}");
        Violation::new(path, line, message)
    };
    large.map(refuse).collect()
}

/// Findings in each file of the source of placement, proto and net, tests apart.
fn surveys(tree: &Tree) -> impl Iterator<Item = (&str, Survey)> {
    tree.rust().filter_map(|(path, file)| {
        let is_source = SOURCES.iter().any(|source| path.starts_with(source));
        // What cannot be parsed is refused by the rules of functions.
        let file = file.as_ref().ok().filter(|_| is_source && !is_test(path))?;
        let mut survey = Survey::default();
        survey.visit_file(file);
        Some((path, survey))
    })
}

/// Findings in a file.
#[derive(Default)]
struct Survey {
    /// Lines and names of fields without a doc.
    silent: Vec<(usize, String)>,
    /// Lines and names of structs of state that are too large, and how many fields they have.
    large: Vec<(usize, String, usize)>,
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
        let is_list =
            fields.named.iter().all(|field| matches!(field.vis, syn::Visibility::Public(_)));
        if !is_list && fields.named.len() >= FIELDS_MAX {
            let line = item.ident.span().start().line;
            self.large.push((line, item.ident.to_string(), fields.named.len()));
        }
    }
}

/// True if a file of a crate's source holds tests.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

const SOURCES: &[&str] = &["crates/net/src/", "crates/placement/src/", "crates/proto/src/"];

/// Fields of a struct of state that are too many.
const FIELDS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/net/src/a.rs";

    /// The lines that a rule refuses.
    fn lines(rule: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::from([(path, text)])).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_field_without_a_doc_is_refused() {
        let text = "struct A {\n/// Bytes.\na: u8,\nb: u8 }\nstruct B(u8);";
        assert_eq!(lines(fields_have_docs, PATH, text), [4]);
    }

    #[test]
    fn fields_of_tests_and_other_crates_pass() {
        let check = |path, text| assert_eq!(lines(fields_have_docs, path, text), [0_usize; 0]);
        check(PATH, "mod tests { struct A { a: u8 } }");
        check("crates/net/src/a/tests.rs", "struct A { a: u8 }");
        check("crates/cli/src/a.rs", "struct A { a: u8 }");
    }

    #[test]
    fn state_of_twenty_fields_is_refused_and_a_public_list_is_not() {
        let of = |count: usize, visibility: &str| {
            let fields: String =
                (0..count).map(|field| format!("{visibility} f{field}: u8, ")).collect();
            lines(state_is_in_parts, PATH, &format!("\nstruct A {{ {fields} }}"))
        };
        assert_eq!(of(FIELDS_MAX, ""), [2]);
        assert_eq!(of(FIELDS_MAX, "pub(super)"), [2]);
        assert_eq!(of(FIELDS_MAX - 1, ""), [0_usize; 0]);
        assert_eq!(of(FIELDS_MAX, "pub"), [0_usize; 0]);
    }
}
