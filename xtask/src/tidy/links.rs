//! Links in Markdown: one that names a file of the repository must find it.

use pulldown_cmark::{Event, Parser, Tag};

use crate::tree::{Tree, Violation};

/// Refuses a link or an image whose relative target is not in the tree.
pub(super) fn relative_links_resolve(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in tree.texts_of(&["md"]) {
        for (event, range) in Parser::new(text).into_offset_iter() {
            let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event
            else {
                continue;
            };
            if !is_relative(&dest_url)
                || resolve(path, &dest_url).is_some_and(|target| tree.holds(&target))
            {
                continue;
            }
            let line = text[..range.start].matches('\n').count() + 1;
            violations.push(Violation::new(
                path,
                line,
                format!("the link to `{dest_url}` leads nowhere"),
            ));
        }
    }
    violations
}

fn is_relative(target: &str) -> bool {
    !target.starts_with('#') && !target.contains("://") && !target.starts_with("mailto:")
}

/// The path from the root that a link in `page` means; none when it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `docs/page.md` whose links lead nowhere.
    fn check(page: &str) -> Vec<usize> {
        let tree = Tree::from([
            ("docs/page.md", page),
            ("docs/other.md", ""),
            ("crates/wire/src/lib.rs", ""),
        ]);
        relative_links_resolve(&tree).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_file_beside_the_page_is_found() {
        assert_eq!(check("[other](other.md#part) ![picture](./other.md)"), [0_usize; 0]);
    }

    #[test]
    fn files_and_directories_above_the_page_are_found() {
        assert_eq!(
            check("[code](../crates/wire/src/lib.rs) [crate](../crates/wire/) [root](..)"),
            [0_usize; 0]
        );
    }

    #[test]
    fn the_web_and_anchors_are_not_looked_up() {
        assert_eq!(
            check(
                "[a](https://example.com/x) [b](#part) [c](mailto:a@example.com) <https://example.com>"
            ),
            [0_usize; 0]
        );
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(check("`[a](gone.md)`\n\n```\n[a](gone.md)\n```\n"), [0_usize; 0]);
    }

    #[test]
    fn a_missing_file_is_refused() {
        assert_eq!(check("text\n\n[gone](gone.md)\n"), [3]);
    }

    #[test]
    fn a_missing_picture_is_refused() {
        assert_eq!(check("![gone](gone.svg)"), [1]);
    }

    #[test]
    fn a_reference_to_a_missing_file_is_refused() {
        assert_eq!(check("a [link][to]\n\n[to]: gone.md\n"), [1]);
    }

    #[test]
    fn a_link_out_of_the_repository_is_refused() {
        assert_eq!(check("[up](../../other.md)\n[absolute](/docs/other.md)"), [1, 2]);
    }
}
