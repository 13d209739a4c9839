//! Text from files of documentation: HTML without its marks, manual pages, plain text.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

/// All files below a directory that may hold text, in an order that is the same everywhere.
pub fn files(below: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![below.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // Links are not followed: what they lead to is there by itself, or elsewhere.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && is_text(&entry.path()) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_text(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
    let is_manual = kind.starts_with(|c: char| c.is_ascii_digit());
    is_manual || TEXTS.contains(&kind) || name.starts_with("data.") || name.starts_with("changelog")
}

/// The text of a file; `None` where it holds none, cannot be read or is too long.
pub fn text(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    let name = path.to_str()?;
    if name.ends_with(".gz") {
        MultiGzDecoder::new(file).take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    } else {
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    }
    let text = String::from_utf8_lossy(&bytes);
    let is_page = name.contains(".html") || name.contains(".htm") || name.contains(".svg");
    Some(if is_page { without_marks(&text) } else { text.into_owned() })
}

/// HTML without tags, scripts and styles, and with a space for each of its entities.
fn without_marks(page: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(page.len() / 2), page);
    while let Some(begin) = rest.find(['<', '&']) {
        let (before, mark) = rest.split_at(begin);
        text.push_str(before);
        text.push(' ');
        let end = if mark.starts_with('&') {
            // An ampersand that begins no entity stands for itself.
            let end = mark.char_indices().take(ENTITY_CHARS_MAX).find(|(_, c)| *c == ';');
            end.map_or(1, |(at, _)| at + 1)
        } else {
            let closing = ["script", "style"]
                .into_iter()
                .find(|name| {
                    mark.get(1..=name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name))
                })
                .map(|name| format!("</{name}"));
            let from = closing.map_or(0, |closing| mark.find(&closing).unwrap_or(mark.len()));
            mark[from..].find('>').map_or(mark.len(), |at| from + at + 1)
        };
        rest = &mark[end..];
    }
    text.push_str(rest);
    text
}

/// Pieces of a text of [`PASSAGE_BYTES`] or little more, with their whitespace made one space each.
pub fn passages(text: &str) -> impl Iterator<Item = String> {
    let mut words = text.split_whitespace();
    std::iter::from_fn(move || {
        let mut passage = String::with_capacity(PASSAGE_BYTES + 64);
        while passage.len() < PASSAGE_BYTES {
            let Some(word) = words.next() else { break };
            // What is so long is a table or encoded data.
            if word.len() <= WORD_BYTES_MAX {
                passage.push_str(word);
                passage.push(' ');
            }
        }
        passage.pop();
        (!passage.is_empty()).then_some(passage)
    })
}

const TEXTS: [&str; 10] = ["html", "htm", "txt", "rst", "pod", "md", "hpp", "cpp", "dot", "svg"];
const FILE_BYTES_MAX: u64 = 32 << 20;
const ENTITY_CHARS_MAX: usize = 12;
/// A screen of text.
const PASSAGE_BYTES: usize = 1000;
const WORD_BYTES_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_scripts_and_entities_are_left_out() {
        let page = "<p class=a>one&amp;two<br>3 & 4</p><SCRIPT>x < y</script><style>b</style>five<";
        let words: Vec<String> = passages(&without_marks(page)).collect();
        assert_eq!(words, ["one two 3 4 five"]);
    }

    #[test]
    fn passages_are_pieces_of_whole_words() {
        let text = "word ".repeat(1000);
        let pieces: Vec<String> = passages(&text).collect();
        assert_eq!(pieces.iter().map(|piece| piece.split(' ').count()).sum::<usize>(), 1000);
        assert!(
            pieces.iter().all(|piece| piece.len() <= PASSAGE_BYTES + WORD_BYTES_MAX),
            "{pieces:?}"
        );
    }
}
