//! Rules that read Rust through a real parser: the size of functions, module docs, module names,
//! and where unsafe lives.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::text::is_vague;
use crate::tree::{Tree, Violation};

/// Refuses a function whose body has more lines between its braces than the style allows.
pub(super) fn functions_are_short(tree: &Tree) -> Vec<Violation> {
    check_functions(tree, |function| {
        let lines = function.body_lines;
        let message = format!("`{}` has {lines} lines; at most {BODY_LINES_MAX}", function.name);
        (lines > BODY_LINES_MAX).then_some(message)
    })
}

/// Refuses a function that takes more arguments than the style allows; `self` is none, and a tuple
/// as many as it has elements.
pub(super) fn functions_take_few_arguments(tree: &Tree) -> Vec<Violation> {
    arguments_are_few(tree, MANY_ARGUMENTS)
}

/// As [`functions_take_few_arguments`], but for the functions in `allowed`, by path and name; one
/// that needs no allowance is refused in it.
fn arguments_are_few(tree: &Tree, allowed: &[(&str, &str)]) -> Vec<Violation> {
    let mut unused = allowed.to_vec();
    let mut violations = Vec::new();
    for (path, file) in tree.rust() {
        for Function { name, line, argument_count: count, .. } in survey(path, file).functions {
            if count <= ARGUMENTS_MAX {
                continue;
            }
            unused.retain(|entry| *entry != (path, name.as_str()));
            if !allowed.contains(&(path, name.as_str())) {
                let message = format!("`{name}` takes {count} arguments; at most {ARGUMENTS_MAX}");
                violations.push(Violation::new(path, line, message));
            }
        }
    }
    violations.extend(unused.into_iter().map(|(path, name)| {
        let message = format!("`{name}` takes few arguments: take it off MANY_ARGUMENTS");
        Violation::new(path, 1, message)
    }));
    violations
}

/// Refuses a file of a crate's source that does not begin with what it is for.
pub(super) fn modules_begin_with_a_doc(tree: &Tree) -> Vec<Violation> {
    let is_module =
        |path: &str| path.starts_with("crates/") && path.split('/').nth(2) == Some("src");
    let modules = tree.texts_of(&["rs"]).filter(|(path, _)| is_module(path));
    let silent = modules.filter(|(_, text)| !text.starts_with("//!"));
    silent
        .map(|(path, _)| {
            Violation::new(path, 1, "begin with a `//!` that says what the module is for")
        })
        .collect()
}

/// Refuses an inline module whose name says nothing about what it holds; files are checked by their
/// paths.
pub(super) fn modules_have_telling_names(tree: &Tree) -> Vec<Violation> {
    tree.rust().flat_map(|(path, file)| survey(path, file).vague_modules).collect()
}

/// Refuses the word `unsafe` as a token anywhere but in net, and at the edge to C: blocks,
/// functions, impls, attributes, and inside of macros.
pub(super) fn unsafe_lives_in_net(tree: &Tree) -> Vec<Violation> {
    let is_home = |path: &str| UNSAFE_HOMES.iter().any(|home| path.starts_with(home));
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of(&["rs"]).filter(|(path, _)| !is_home(path)) {
        let tokens = text.parse::<TokenStream>().unwrap_or_default();
        let found = unsafe_lines(tokens).into_iter();
        violations.extend(found.map(|line| {
            Violation::new(path, line, "unsafe lives in crates/net (law 5) and at the edges to C")
        }));
    }
    violations
}

/// Facts of a function that the rules need.
struct Function {
    name: String,
    line: usize,
    /// Strictly between the braces; 0 for a declaration.
    body_lines: usize,
    argument_count: usize,
}

/// Findings of one walk over a file.
#[derive(Default)]
struct Survey {
    path: String,
    functions: Vec<Function>,
    vague_modules: Vec<Violation>,
    /// Set when the file is not Rust.
    unparsable: Option<Violation>,
}

impl Survey {
    fn add(&mut self, signature: &syn::Signature, body: Option<&syn::Block>) {
        let braces = body.map(|block| block.brace_token.span);
        let height = braces.map_or(0, |span| span.close().start().line - span.open().start().line);
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line: signature.ident.span().start().line,
            body_lines: height.saturating_sub(1),
            argument_count: signature
                .inputs
                .iter()
                .map(|input| match input {
                    syn::FnArg::Typed(argument) => element_count(&argument.ty),
                    syn::FnArg::Receiver(_) => 0,
                })
                .sum(),
        });
    }
}

impl<'ast> Visit<'ast> for Survey {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, Some(&item.block));
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, Some(&item.block));
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.add(&item.sig, item.default.as_ref());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() && is_vague(&name) {
            let line = item.ident.span().start().line;
            self.vague_modules.push(Violation::new(
                &self.path,
                line,
                format!("`{name}` does not say what is in it"),
            ));
        }
        visit::visit_item_mod(self, item);
    }
}

/// Number of arguments that a type stands for: more than one in a tuple.
fn element_count(argument: &syn::Type) -> usize {
    match argument {
        syn::Type::Tuple(tuple) => tuple.elems.iter().map(element_count).sum::<usize>().max(1),
        _ => 1,
    }
}

fn check_functions(tree: &Tree, refuse: fn(&Function) -> Option<String>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, file) in tree.rust() {
        let survey = survey(path, file);
        violations.extend(survey.unparsable);
        let refused =
            survey.functions.iter().filter_map(|function| Some((function.line, refuse(function)?)));
        violations.extend(refused.map(|(line, message)| Violation::new(path, line, message)));
    }
    violations
}

fn survey(path: &str, file: &syn::Result<syn::File>) -> Survey {
    let mut survey = Survey { path: path.to_owned(), ..Survey::default() };
    match file {
        Ok(file) => survey.visit_file(file),
        Err(error) => {
            let line = error.span().start().line;
            survey.unparsable = Some(Violation::new(path, line, format!("not Rust: {error}")));
        }
    }
    survey
}

fn unsafe_lines(tokens: TokenStream) -> Vec<usize> {
    let mut lines = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "unsafe" => lines.push(word.span().start().line),
            TokenTree::Group(group) => lines.extend(unsafe_lines(group.stream())),
            _ => {}
        }
    }
    lines
}

const BODY_LINES_MAX: usize = 70;

const ARGUMENTS_MAX: usize = 5;

/// Functions that take more, by path and name: this list only shrinks.
const MANY_ARGUMENTS: &[(&str, &str)] = &[
    ("crates/experiments/src/chip.rs", "new"),
    ("crates/experiments/src/verdict.rs", "new"),
    ("crates/proto/tests/it/stream_messages.rs", "message"),
    ("crates/wire/src/r2p2/packet.rs", "check"),
    ("crates/wire/tests/it/golden/extended.rs", "sack"),
    ("crates/wire/tests/it/golden/homa.rs", "data"),
];

/// net, as law 5 has it; the edge to C, whose pointers nothing else can take; and the probe, which
/// exports a symbol, and an edition-2024 export is spelled `#[unsafe(no_mangle)]`.
const UNSAFE_HOMES: &[&str] = &[
    "apps/redis/src/api.rs",
    "apps/redis/src/lib.rs",
    "crates/net/",
    "crates/c/src/",
    "xtask/wasm-probe/src/lib.rs",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a rule refuses in one file.
    fn check(rule: fn(&Tree) -> Vec<Violation>, path: &str, text: &str) -> Vec<usize> {
        rule(&Tree::from([(path, text)])).into_iter().map(|violation| violation.line).collect()
    }

    fn body_of(lines: usize) -> String {
        format!("{{\n{}}}", "    call();\n".repeat(lines))
    }

    #[test]
    fn a_function_of_70_lines_passes() {
        assert_eq!(
            check(functions_are_short, "a.rs", &format!("fn f() {}", body_of(70))),
            [0_usize; 0]
        );
    }

    #[test]
    fn a_function_of_71_lines_is_refused() {
        assert_eq!(check(functions_are_short, "a.rs", &format!("\nfn f() {}", body_of(71))), [2]);
    }

    #[test]
    fn a_long_method_is_refused() {
        assert_eq!(
            check(
                functions_are_short,
                "a.rs",
                &format!("impl A {{ fn f(&self) {} }}", body_of(71))
            ),
            [1]
        );
    }

    #[test]
    fn a_long_method_of_a_trait_is_refused() {
        assert_eq!(
            check(
                functions_are_short,
                "a.rs",
                &format!("trait A {{ fn f(&self) {} }}", body_of(71))
            ),
            [1]
        );
    }

    #[test]
    fn a_long_function_within_a_module_is_refused() {
        assert_eq!(
            check(functions_are_short, "a.rs", &format!("mod m {{\nfn f() {} }}", body_of(71))),
            [2]
        );
    }

    #[test]
    fn what_is_not_rust_is_refused() {
        assert_eq!(check(functions_are_short, "a.rs", "fn f() {}\nfn 1\n"), [2]);
    }

    fn few_arguments(tree: &Tree) -> Vec<Violation> {
        arguments_are_few(tree, &[])
    }

    #[test]
    fn five_arguments_and_self_pass() {
        let text = "impl A { fn f(&self, a: u8, b: u8, c: u8, d: u8, e: u8) {} }";
        assert_eq!(check(few_arguments, "a.rs", text), [0_usize; 0]);
    }

    #[test]
    fn six_arguments_are_refused() {
        let text = "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}";
        assert_eq!(check(few_arguments, "a.rs", text), [1]);
    }

    #[test]
    fn six_arguments_of_a_declaration_are_refused() {
        let text = "trait A {\n fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8); }";
        assert_eq!(check(few_arguments, "a.rs", text), [2]);
    }

    #[test]
    fn elements_of_a_tuple_are_arguments() {
        let text = "fn f(a: u8, (b, c): (u8, (u8, u8)), d: (), e: u8) {}";
        assert_eq!(check(few_arguments, "a.rs", text), [1]);
    }

    #[test]
    fn a_function_that_is_allowed_many_arguments_passes() {
        let allowing = |tree: &Tree| arguments_are_few(tree, &[("a.rs", "f")]);
        let text = "fn f(a: (u8, u8, u8), b: (u8, u8, u8)) {}";
        assert_eq!(allowing(&Tree::from([("a.rs", text)])), []);
    }

    #[test]
    fn an_allowance_that_is_not_needed_is_refused() {
        let allowing = |tree: &Tree| arguments_are_few(tree, &[("a.rs", "f")]);
        assert_eq!(allowing(&Tree::from([("a.rs", "\nfn f(a: (u8, u8)) {}")]))[0].line, 1);
        assert_eq!(allowing(&Tree::from([("b.rs", "")]))[0].path, "a.rs");
    }

    #[test]
    fn a_module_with_a_doc_passes() {
        assert_eq!(
            check(modules_begin_with_a_doc, "crates/wire/src/r2p2.rs", "//! The header.\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn a_module_without_a_doc_is_refused() {
        assert_eq!(
            check(modules_begin_with_a_doc, "crates/wire/src/r2p2/flags.rs", "use core::fmt;\n"),
            [1]
        );
    }

    #[test]
    fn a_test_of_a_crate_needs_no_module_doc() {
        assert_eq!(
            check(modules_begin_with_a_doc, "crates/wire/tests/r2p2.rs", "use core::fmt;\n"),
            [0_usize; 0]
        );
    }

    #[test]
    fn a_vague_inline_module_is_refused() {
        assert_eq!(
            check(modules_have_telling_names, "a.rs", "mod outer {\nmod helpers { }\n}"),
            [2]
        );
    }

    #[test]
    fn unsafe_in_net_passes() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/net/src/lib.rs", "fn f() { unsafe { g() } }"),
            [0_usize; 0]
        );
    }

    #[test]
    fn unsafe_at_the_edge_to_c_passes() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/c/src/client.rs", "fn f() { unsafe { g() } }"),
            [0_usize; 0]
        );
    }

    #[test]
    fn unsafe_in_a_test_of_the_edge_to_c_is_refused() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/c/tests/it/main.rs", "fn f() { unsafe { g() } }"),
            [1]
        );
    }

    #[test]
    fn an_unsafe_block_is_refused() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/proto/src/lib.rs", "fn f() {\nunsafe { g() } }"),
            [2]
        );
    }

    #[test]
    fn an_unsafe_impl_is_refused() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/proto/tests/a.rs", "unsafe impl Send for A {}"),
            [1]
        );
    }

    #[test]
    fn unsafe_within_a_macro_is_refused() {
        assert_eq!(
            check(unsafe_lives_in_net, "crates/proto/src/lib.rs", "m! {\n {\n unsafe { g() } } }"),
            [3]
        );
    }

    #[test]
    fn the_word_in_a_comment_or_a_string_or_a_lint_passes() {
        let text = "#![forbid(unsafe_code)]\n// unsafe\n/// unsafe\nconst A: &str = \"unsafe\";";
        assert_eq!(check(unsafe_lives_in_net, "crates/proto/src/lib.rs", text), [0_usize; 0]);
    }
}
