//! The index: passages of text with their words, places and sizes.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tantivy::collector::{Count, TopDocs};
use tantivy::query::QueryParser;
use tantivy::schema::{FAST, Field, INDEXED, STORED, STRING, Schema, TEXT, Value};
use tantivy::{Index, TantivyDocument, doc};

use crate::corpus;

/// The file of an index with passages that queries may quote.
pub const SAMPLES: &str = "samples.txt";

/// Totals of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Files with text.
    pub files: u64,
    /// Bytes of their text.
    pub bytes: u64,
    /// Passages.
    pub passages: u64,
}

struct Fields {
    title: Field,
    body: Field,
    size: Field,
}

impl Fields {
    fn schema() -> (Schema, Self) {
        let mut schema = Schema::builder();
        let fields = Self {
            title: schema.add_text_field("title", STRING | STORED),
            body: schema.add_text_field("body", TEXT),
            size: schema.add_u64_field("size", INDEXED | FAST),
        };
        (schema.build(), fields)
    }
}

/// Makes an index of the text below a directory, up to `bytes_max` of it, and writes a sample of
/// the passages beside it.
///
/// # Errors
///
/// That the directory cannot be read, or the index cannot be written or is there already.
pub fn build(from: &Path, directory: &Path, bytes_max: u64) -> Result<Totals> {
    let files = corpus::files(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::create_dir(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let (schema, fields) = Fields::schema();
    let index = Index::create_in_dir(directory, schema)?;
    // One thread, so that the index is the same each time.
    let mut writer = index.writer_with_num_threads(1, WRITER_BYTES)?;
    let (mut totals, mut samples) = (Totals::default(), Vec::new());
    for path in files {
        let Some(text) = corpus::text(&path) else { continue };
        totals.files += 1;
        totals.bytes += text.len() as u64;
        let title = path.strip_prefix(from).unwrap_or(&path).to_string_lossy().into_owned();
        for passage in corpus::passages(&text) {
            totals.passages += 1;
            if totals.passages % SAMPLE_EVERY == 0 {
                samples.push(passage.clone());
            }
            writer.add_document(doc!(
                fields.title => title.clone(), fields.size => passage.len() as u64, fields.body => passage,
            ))?;
        }
        if totals.bytes >= bytes_max {
            break;
        }
    }
    ensure!(totals.passages > 0, "no text is below {}", from.display());
    writer.commit()?;
    // One segment, as an index is that is not written any more.
    let segments = index.searchable_segment_ids()?;
    if segments.len() > 1 {
        writer.merge(&segments).wait()?;
    }
    writer.wait_merging_threads()?;
    let mut file = fs::File::create(directory.join(SAMPLES))?;
    for sample in &samples {
        writeln!(file, "{sample}")?;
    }
    Ok(totals)
}

/// An open index, memory-mapped.
pub struct Searcher {
    searcher: tantivy::Searcher,
    parser: QueryParser,
    title: Field,
}

impl Searcher {
    /// Opens an index.
    ///
    /// # Errors
    ///
    /// That there is none.
    pub fn open(directory: &Path) -> Result<Self> {
        let index = Index::open_in_dir(directory)
            .with_context(|| format!("cannot open the index at {}", directory.display()))?;
        let (_, fields) = Fields::schema();
        let parser = QueryParser::for_index(&index, vec![fields.body]);
        let reader =
            index.reader_builder().reload_policy(tantivy::ReloadPolicy::Manual).try_into()?;
        Ok(Self { searcher: reader.searcher(), parser, title: fields.title })
    }

    /// Number of passages that a query finds, and the titles of the ten best, a line each.
    ///
    /// # Errors
    ///
    /// That the query makes no sense, or the index is broken.
    pub fn answer(&self, query: &str) -> Result<String> {
        let query = self.parser.parse_query(query)?;
        let best = TopDocs::with_limit(ANSWERS).order_by_score();
        let (best, count) = self.searcher.search(&query, &(best, Count))?;
        let mut answer = format!("{count}\n");
        for (_, address) in best {
            let document: TantivyDocument = self.searcher.doc(address)?;
            let title = document.get_first(self.title).and_then(|title| title.as_str());
            answer.push_str(title.unwrap_or_default());
            answer.push('\n');
        }
        Ok(answer)
    }

    /// The words of the index with the number of passages that have them, the most frequent first.
    ///
    /// # Errors
    ///
    /// That the index is broken.
    pub fn words(&self) -> Result<Vec<(u32, String)>> {
        let (_, fields) = Fields::schema();
        let mut words = Vec::new();
        for segment in self.searcher.segment_readers() {
            let inverted = segment.inverted_index(fields.body)?;
            let mut terms = inverted.terms().stream()?;
            while let Some((bytes, info)) = terms.next() {
                let is_word = bytes.len() >= 2 && bytes.iter().all(u8::is_ascii_lowercase);
                if let (true, Ok(word)) =
                    (is_word && info.doc_freq >= FREQUENCY_MIN, str::from_utf8(bytes))
                {
                    words.push((info.doc_freq, word.to_owned()));
                }
            }
        }
        words.sort_by(|one, other| other.cmp(one));
        Ok(words)
    }
}

const WRITER_BYTES: usize = 400_000_000;
/// Passages for one that queries may quote.
const SAMPLE_EVERY: u64 = 50;
const ANSWERS: usize = 10;
/// Rarer words are seldom any.
const FREQUENCY_MIN: u32 = 3;
