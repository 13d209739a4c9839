//! Log lines: the events of `tracing`, and the counters that have a line when they rise.

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::gauges::Tuples;
use super::table;
use crate::tree::Tree;

/// The section.
pub(super) fn section(tree: &Tree) -> Result<String> {
    let (mut lines, mut troubles) = (Vec::new(), Vec::new());
    for (path, _) in tree.texts_of(&["rs"]).filter(|(path, _)| is_source(path)) {
        let mut events = Events::default();
        tree.items(path)?.iter().for_each(|item| events.visit_item(item));
        lines.extend(events.found);
        if path.ends_with("/log.rs") {
            troubles.extend(events.troubles.found);
        }
    }
    lines.sort();
    lines.dedup();
    let lines = lines.into_iter().map(|(level, text, fields)| {
        vec![
            level,
            format!("`{text}`"),
            fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", "),
        ]
    });
    let lines: Vec<Vec<String>> = lines.collect();
    let troubles: Vec<Vec<String>> = troubles
        .into_iter()
        .map(|(counter, text)| vec![format!("`{counter}`"), format!("`{text}`")])
        .collect();
    Ok(format!(
        "{ABOUT}{}\n{RISES}{}",
        table(&["level", "line", "with"], &lines),
        table(&["counter", "line"], &troubles)
    ))
}

fn is_source(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("/tests")
}

/// Levels, texts and fields of events; and pairs of texts.
#[derive(Default)]
struct Events {
    found: Vec<(String, String, Vec<String>)>,
    troubles: Tuples,
}

impl<'ast> Visit<'ast> for Events {
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let mut path = call.path.segments.iter().map(|segment| segment.ident.to_string());
        if path.next().as_deref() != Some("tracing") {
            return;
        }
        let level = path.next().unwrap_or_default().to_uppercase();
        if let Some((text, fields)) =
            event(call.tokens.clone()).filter(|_| LEVELS.contains(&level.as_str()))
        {
            self.found.push((level, text, fields));
        }
    }

    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        self.troubles.visit_expr_tuple(tuple);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

/// The text and the fields of an event; none where the text is a variable's.
fn event(tokens: TokenStream) -> Option<(String, Vec<String>)> {
    let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
    for token in tokens {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ',' => parts.push(Vec::new()),
            token => parts.last_mut()?.push(token),
        }
    }
    parts.retain(|part| !part.is_empty());
    let [TokenTree::Literal(literal)] = &parts.pop()?[..] else { return None };
    let text = literal.to_string().trim_matches('"').to_owned();
    let name = |part: Vec<TokenTree>| {
        part.into_iter().find_map(|token| match token {
            TokenTree::Ident(name) => Some(name.to_string()),
            _ => None,
        })
    };
    (text != "{text}").then(|| (text, parts.into_iter().filter_map(name).collect()))
}

const LEVELS: [&str; 3] = ["ERROR", "WARN", "INFO"];

const ABOUT: &str = "\
## Log lines

[Operations](operations.md#logging) says how to turn them on and filter them. Names in `{}` are placeholders.

";

const RISES: &str = "\
A counter that means trouble has a line at WARN when it rises, with `at` (whose it is), `counter`, `count` (by how much) and `total`:

";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: Option<(&str, &[&str])>) {
        let found = event(source.parse().unwrap());
        let expected = expected.map(|(text, fields)| {
            (text.to_owned(), fields.iter().map(|&field| field.to_owned()).collect())
        });
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn an_event_has_its_text_and_its_fields() {
        check(
            "server = %addr, outstanding, \"server silent\"",
            Some(("server silent", &["server", "outstanding"])),
        );
        check("%at, \"port opened\"", Some(("port opened", &["at"])));
        check("count = total - *told, \"{text}\"", None);
    }
}
