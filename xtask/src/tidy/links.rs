//! Links in Markdown: one that names a file of the repository, or a heading in it, must find it;
//! and the book must hold every page.

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

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
            if dest_url.contains("://")
                || dest_url.starts_with("mailto:")
                || leads(tree, path, &dest_url)
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

/// Refuses a page of the book that its summary does not name: no reader would find it.
pub(super) fn summary_names_every_page(tree: &Tree) -> Vec<Violation> {
    let summary = tree.text(SUMMARY).unwrap_or_default();
    let pages = tree.texts_of(&["md"]).filter_map(|(path, _)| path.strip_prefix("docs/"));
    let missing =
        pages.filter(|page| *page != "SUMMARY.md" && !summary.contains(&format!("({page})")));
    missing.map(|page| Violation::new(SUMMARY, 1, format!("`{page}` is not in the book"))).collect()
}

/// True if a link of `page` leads to something of the repository.
fn leads(tree: &Tree, page: &str, link: &str) -> bool {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = (if file.is_empty() { Some(page.to_owned()) } else { resolve(page, file) })
    else {
        return false;
    };
    if heading.is_empty() || !target.ends_with(".md") {
        return tree.holds(&target);
    }
    tree.text(&target).is_some_and(|text| anchors(text).iter().any(|anchor| anchor == heading))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut heading = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let count = anchors.iter().filter(|other| **other == anchor).count();
                anchors.push(if count == 0 { anchor } else { format!("{anchor}-{count}") });
            }
            _ => {}
        }
    }
    anchors
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

/// The path from the root that a link in `page` means; none when it leaves the repository.
fn resolve(page: &str, target: &str) -> Option<String> {
    let file = target.split('?').next().unwrap_or_default();
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

const SUMMARY: &str = "docs/SUMMARY.md";

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `docs/page.md` whose links lead nowhere.
    fn check(page: &str) -> Vec<usize> {
        let tree = Tree::from([
            ("docs/page.md", page),
            ("docs/other.md", "# A `part`, 2nd\n\n# Part\n\n# Part\n"),
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
    fn the_web_is_not_looked_up() {
        assert_eq!(
            check("[a](https://example.com/x) [c](mailto:a@example.com) <https://example.com>"),
            [0_usize; 0]
        );
    }

    #[test]
    fn headings_are_found() {
        assert_eq!(
            check("[a](other.md#a-part-2nd) [b](other.md#part-1)\n\n## Here\n\n[c](#here)"),
            [0_usize; 0]
        );
    }

    #[test]
    fn a_missing_heading_is_refused() {
        assert_eq!(check("[a](other.md#gone)\n\n[b](#gone)"), [1, 3]);
    }

    #[test]
    fn a_page_that_the_summary_does_not_name_is_refused() {
        let of = |summary: &str| {
            let tree = Tree::from([(SUMMARY, summary), ("docs/a/b.md", ""), ("README.md", "")]);
            summary_names_every_page(&tree).len()
        };
        assert_eq!((of("- [B](a/b.md)"), of("- [C](c.md)")), (0, 1));
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
