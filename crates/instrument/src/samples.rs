//! Every measured request as a line of a file, written while it is measured.
//!
//! | column | what |
//! |---|---|
//! | `load` | number of the load, from 0 |
//! | `agent` | place of the agent in the result, from 0 |
//! | `intended_ns`, `sent_ns` | when it should have left and when it did, ns since the start of the load |
//! | `latency_ns` | from the intended send to the reply; empty without one |
//! | `outcome` | `ok`, `miss`, `error_KIND`; `lost`, `refused`, `timeout` without a reply |
//!
//! Invariant: each measured request of an agent that measures is either a line or counted as left
//! out; what a run begins again is neither.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tailcut_measure::app::Outcome;
use tailcut_measure::slices::{Slice, Unusual};

use super::result::SamplesFile;

/// The file.
#[derive(Debug)]
pub struct Samples {
    path: PathBuf,
    file: File,
    /// Lines at most.
    limit: u64,
    /// Extent of the file so far.
    so_far: Mark,
    /// Extent of the file when the load began.
    load_began: Mark,
    /// Loads so far.
    loads: u32,
    /// Lines that are still to be written, and how many.
    buffer: Vec<u8>,
    pending: u64,
    /// Error after which no more can be written.
    failed: io::Result<()>,
}

/// Extent of the file.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    bytes: u64,
    written: u64,
    left_out: u64,
}

impl Samples {
    /// An empty file for `limit` requests at most.
    ///
    /// # Errors
    ///
    /// That it cannot be written, or is no file: what a run begins again is taken back out of it.
    pub fn create(path: &Path, limit: u64) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let mut file = File::create(path).with_context(cannot)?;
        let is_file = file.metadata().with_context(cannot)?.is_file();
        ensure!(is_file, "{} is no file, which --samples needs", path.display());
        file.write_all(HEAD).with_context(cannot)?;
        let so_far = Mark { bytes: HEAD.len() as u64, ..Mark::default() };
        let (path, buffer) = (path.to_owned(), Vec::with_capacity(BUFFER_LEN));
        Ok(Self {
            path,
            file,
            limit,
            so_far,
            load_began: so_far,
            loads: 0,
            buffer,
            pending: 0,
            failed: Ok(()),
        })
    }

    /// A load begins.
    pub(super) fn begin(&mut self) {
        self.flush();
        self.load_began = self.so_far;
        self.loads += 1;
    }

    /// The measurement of the load begins, perhaps again: what there is of it does not count.
    pub(super) fn restart(&mut self) {
        self.buffer.clear();
        self.pending = 0;
        let is_longer = self.so_far.bytes > self.load_began.bytes;
        self.so_far = self.load_began;
        if is_longer && self.failed.is_ok() {
            self.failed = self.cut();
        }
    }

    /// Takes a slice of the agent at a place.
    pub(super) fn take(&mut self, agent: usize, slice: &Slice) {
        let mut unusual = slice.unusual.iter().peekable();
        for sample in &slice.samples {
            let times_ns = (sample.intended_ns, sample.latency_ns);
            let is_it = |unusual: &&Unusual| (unusual.intended_ns, unusual.latency_ns) == times_ns;
            let outcome = match unusual.next_if(is_it).map(|unusual| unusual.outcome) {
                None | Some(Outcome::Ok) => ["", "ok"],
                Some(Outcome::Miss) => ["", "miss"],
                Some(Outcome::Error(kind)) => ["error_", kind.into()],
            };
            let sent_ns = sample.intended_ns.saturating_add(sample.late_ns);
            self.put(agent, [sample.intended_ns, sent_ns], Some(sample.latency_ns), outcome);
        }
        for unanswered in &slice.unanswered {
            let times_ns = [unanswered.intended_ns, unanswered.sent_ns];
            self.put(agent, times_ns, None, ["", unanswered.failure.into()]);
        }
    }

    /// Writes what is left; what the file holds, and why it does not hold more.
    pub(crate) fn finish(mut self) -> SamplesFile {
        self.flush();
        let Mark { written, left_out, .. } = self.so_far;
        let path = self.path.display().to_string();
        let failed = std::mem::replace(&mut self.failed, Ok(())).err();
        let failed = failed.map(|error| format!("cannot write {path}: {error}"));
        SamplesFile { path, written, left_out, failed }
    }

    fn put(
        &mut self,
        agent: usize,
        times_ns: [u64; 2],
        latency_ns: Option<u64>,
        outcome: [&str; 2],
    ) {
        if self.so_far.written + self.pending >= self.limit || self.failed.is_err() {
            self.so_far.left_out += 1;
            return;
        }
        let mut digits = itoa::Buffer::new();
        for number in
            [u64::from(self.loads.saturating_sub(1)), agent as u64, times_ns[0], times_ns[1]]
        {
            self.buffer.extend_from_slice(digits.format(number).as_bytes());
            self.buffer.push(b',');
        }
        if let Some(latency_ns) = latency_ns {
            self.buffer.extend_from_slice(digits.format(latency_ns).as_bytes());
        }
        self.buffer.push(b',');
        outcome.iter().for_each(|part| self.buffer.extend_from_slice(part.as_bytes()));
        self.buffer.push(b'\n');
        self.pending += 1;
        if self.buffer.len() >= BUFFER_LEN {
            self.flush();
        }
    }

    /// Writes the lines that wait. Where that fails, they are left out, and all that come.
    fn flush(&mut self) {
        let written = self.file.write_all(&self.buffer);
        match written {
            Ok(()) => {
                self.so_far.bytes += self.buffer.len() as u64;
                self.so_far.written += self.pending;
            }
            Err(error) => {
                self.so_far.left_out += self.pending;
                self.failed = Err(error);
                // A part of them may be there; where that cannot be helped either, the first
                // failure says enough.
                let _ = self.cut();
            }
        }
        self.buffer.clear();
        self.pending = 0;
    }

    /// Nothing is in the file that does not count.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.so_far.bytes)?;
        self.file.seek(SeekFrom::Start(self.so_far.bytes)).map(|_| ())
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.flush();
    }
}

const HEAD: &[u8] = b"load,agent,intended_ns,sent_ns,latency_ns,outcome\n";

/// A write is about so long: some 25,000 lines.
const BUFFER_LEN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use tailcut_measure::app::{ErrorCode, ErrorKind};
    use tailcut_measure::outcome::Failure;
    use tailcut_measure::slices::{Unanswered, Unusual};
    use tailcut_measure::statistics::series::Timed;

    use super::*;

    /// A file that goes with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("tailcut-{}-{name}.csv", std::process::id())))
        }

        fn lines(&self) -> Vec<String> {
            fs::read_to_string(&self.0).unwrap().lines().map(str::to_owned).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// Four replies, one of them an error and two at one time, and a request without one.
    fn slice() -> Slice {
        let sample = |intended_ns, latency_ns, late_ns| Timed { intended_ns, latency_ns, late_ns };
        Slice {
            samples: vec![
                sample(10, 500, 0),
                sample(20, 600, 5),
                sample(20, 700, 0),
                sample(30, 800, 0),
            ],
            unusual: vec![
                Unusual {
                    intended_ns: 20,
                    latency_ns: 700,
                    outcome: Outcome::Miss,
                    code: ErrorCode::default(),
                },
                Unusual {
                    intended_ns: 30,
                    latency_ns: 800,
                    outcome: Outcome::Error(ErrorKind::Busy),
                    code: ErrorCode::default(),
                },
            ],
            unanswered: vec![Unanswered {
                intended_ns: 25,
                sent_ns: 26,
                failure: Failure::Timeout,
            }],
            ..Slice::default()
        }
    }

    #[test]
    fn each_request_is_a_line_with_its_outcome() {
        let scratch = Scratch::new("lines");
        let mut samples = Samples::create(&scratch.0, 100).unwrap();
        samples.begin();
        samples.take(3, &slice());
        let told = samples.finish();
        assert_eq!(told.failed, None);
        assert_eq!((told.written, told.left_out), (5, 0));
        let expected = [
            "load,agent,intended_ns,sent_ns,latency_ns,outcome",
            "0,3,10,10,500,ok",
            "0,3,20,25,600,ok",
            "0,3,20,20,700,miss",
            "0,3,30,30,800,error_busy",
            "0,3,25,26,,timeout",
        ];
        assert_eq!(scratch.lines(), expected);
    }

    #[test]
    fn beyond_the_limit_requests_are_counted() {
        let scratch = Scratch::new("limit");
        let mut samples = Samples::create(&scratch.0, 7).unwrap();
        samples.begin();
        (0..3).for_each(|_| samples.take(0, &slice()));
        let told = samples.finish();
        assert_eq!(told.failed, None);
        assert_eq!((told.written, told.left_out), (7, 8));
        assert_eq!(scratch.lines().len(), 1 + 7);
    }

    #[test]
    fn a_measurement_that_begins_again_leaves_nothing_and_an_earlier_load_stays() {
        let scratch = Scratch::new("again");
        let mut samples = Samples::create(&scratch.0, 12).unwrap();
        samples.begin();
        samples.take(0, &slice());
        samples.begin();
        (0..3).for_each(|_| samples.take(0, &slice()));
        samples.restart();
        samples.take(1, &slice());
        let told = samples.finish();
        assert_eq!(told.failed, None);
        assert_eq!((told.written, told.left_out), (10, 0));
        let lines = scratch.lines();
        assert_eq!(lines.len(), 1 + 10);
        assert!(lines[1..6].iter().all(|line| line.starts_with("0,0,")), "{lines:?}");
        assert!(lines[6..].iter().all(|line| line.starts_with("1,1,")), "{lines:?}");
    }

    /// The device takes nothing.
    #[test]
    fn what_cannot_be_written_is_counted_and_said() {
        let scratch = Scratch::new("full");
        let mut samples = Samples::create(&scratch.0, u64::MAX).unwrap();
        samples.file = File::options().write(true).open("/dev/full").unwrap();
        samples.begin();
        (0..20).for_each(|_| samples.take(0, &slice()));
        let told = samples.finish();
        assert!(told.failed.unwrap().contains("No space left"));
        assert_eq!((told.written, told.left_out), (0, 100));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let error = Samples::create(Path::new("/dev/null"), 1).unwrap_err();
        assert!(error.to_string().contains("is no file"), "{error}");
    }
}
