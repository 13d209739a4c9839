//! Gauges, histograms and counters that have a name of their own in `/metrics`.

use std::collections::BTreeMap;

use anyhow::Result;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, ExprStruct, Lit, Pat};

use super::table;
use crate::tree::Tree;

/// The section.
pub(super) fn section(tree: &Tree) -> Result<String> {
    let mut rows = Vec::new();
    for (path, _) in tree.texts_of(&["rs"]).filter(|(path, _)| path.starts_with(SOURCES)) {
        let Some((_, command)) = COMMANDS.iter().find(|(place, _)| path.contains(place)) else {
            continue;
        };
        let mut found = Found::default();
        tree.items(path)?.iter().for_each(|item| found.visit_item(item));
        for (name, kind, help) in found.families {
            rows.push(vec![format!("`{command}_{name}`"), kind.to_owned(), help]);
        }
    }
    rows.sort();
    rows.dedup();
    Ok(format!("{ABOUT}{}\n", table(&["metric", "kind", "what"], &rows)))
}

/// Families of samples: name, kind and help.
#[derive(Default)]
struct Found {
    families: Vec<(String, &'static str, String)>,
    /// Texts that have a name, so far; those of the same name follow each other.
    named: BTreeMap<String, String>,
}

impl<'ast> Visit<'ast> for Found {
    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && let Some(text) = text(&init.expr)
        {
            self.named.insert(name.ident.to_string(), text);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let mut texts = call.args.iter().take(2).map(|argument| self.text(argument));
        if let (Some(Some(name)), Some(Some(help))) = (texts.next(), texts.next()) {
            let family = match call.method.to_string().as_str() {
                "gauge" => Some((name.clone(), "gauge")),
                "counter" => Some((format!("{name}_total"), "counter")),
                "histogram" | "histograms" => Some((format!("{name}_seconds"), "histogram")),
                _ => None,
            };
            self.families.extend(family.map(|(name, kind)| (name, kind, help)));
        }
        visit::visit_expr_method_call(self, call);
    }

    /// Those of a bridge or a gateway are tuples in what it is asked for.
    fn visit_expr_struct(&mut self, value: &'ast ExprStruct) {
        if value.path.segments.last().is_some_and(|segment| segment.ident == "Snapshot") {
            for field in &value.fields {
                let syn::Member::Named(name) = &field.member else { continue };
                let kind = if name == "times" { "histogram" } else { "gauge" };
                let mut tuples = Tuples::default();
                tuples.visit_expr(&field.expr);
                self.families.extend(tuples.found.into_iter().map(|(name, help)| {
                    let name = if kind == "histogram" { format!("{name}_seconds") } else { name };
                    (name, kind, help)
                }));
            }
        }
        visit::visit_expr_struct(self, value);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

impl Found {
    /// The text of an argument: a literal, or the name of one.
    fn text(&self, argument: &Expr) -> Option<String> {
        match argument {
            Expr::Path(path) => self.named.get(&path.path.get_ident()?.to_string()).cloned(),
            _ => text(argument),
        }
    }
}

/// The first two texts of tuples, also in the tokens of a `vec!`.
#[derive(Default)]
pub(super) struct Tuples {
    pub(super) found: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for Tuples {
    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        let texts: Vec<String> = tuple.elems.iter().map_while(text).take(2).collect();
        if let [first, second] = &texts[..] {
            self.found.push((first.clone(), second.clone()));
        }
        visit::visit_expr_tuple(self, tuple);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let parser = syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated;
        // Others than lists hold no tuples.
        if let Ok(items) = call.parse_body_with(parser) {
            for item in &items {
                Tuples::visit_expr_into(self, item);
            }
        }
    }
}

impl Tuples {
    fn visit_expr_into(into: &mut Self, item: &Expr) {
        let mut inner = Tuples::default();
        inner.visit_expr(item);
        into.found.extend(inner.found);
    }
}

/// A literal text.
fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

const SOURCES: &str = "crates/cli/src/";

/// Prefixes of the names that a file writes.
const COMMANDS: &[(&str, &str)] = &[
    ("src/serve/", "tailcut_serve"),
    ("src/route/", "tailcut_route"),
    ("src/bridge/", "tailcut_bridge"),
    ("src/gateway/", "tailcut_gateway"),
    ("src/agent.rs", "tailcut_agent"),
    ("src/sidecar.rs", "tailcut_COMMAND"),
    ("src/admin/text.rs", "tailcut_COMMAND"),
];

const ABOUT: &str = "\
## Other metrics

Current values, histograms, and counters of a single server or worker. `COMMAND` stands for the name of a command with an admin port; only
`bridge` and `gateway` have `tailcut_COMMAND_ready`.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_where_they_are_written() {
        let source = "fn f(page: &mut Page) { page.gauge(\"busy\", \"Busy ones.\").value(1); page.counter(\"taken\", \"Taken.\"); \
                      let help = \"Held.\"; page.histogram(\"hold\", help, &times); page.counter(&name, \"no\"); }";
        let mut found = Found::default();
        found.visit_file(&syn::parse_file(source).unwrap());
        found.families.sort();
        let names: Vec<&str> = found.families.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["busy", "hold_seconds", "taken_total"]);
    }

    #[test]
    fn families_of_a_snapshot_are_found_in_its_lists() {
        let source = "fn f() -> Snapshot { Snapshot { gauges: vec![(\"up\", \"Up.\", 1)], times: vec![(\"service\", \"Time.\", t)] } }";
        let mut found = Found::default();
        found.visit_file(&syn::parse_file(source).unwrap());
        let names: Vec<&str> = found.families.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["up", "service_seconds"]);
    }
}
