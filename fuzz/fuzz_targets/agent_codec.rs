//! Whatever an agent sends for a slice or for what its stamps say: nothing panics, no more is kept
//! than bytes came, and what is read is written and read again as equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tailcut_measure::codec::{Reader, put_slice, put_stamps, read_slice, read_stamps};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(slice) = read_slice(&mut Reader::new(bytes)) {
        let items = slice.samples.len() + slice.unusual.len() + slice.unanswered.len();
        assert!(3 * items <= bytes.len(), "no more than came");
        let mut again = Vec::new();
        put_slice(&slice, &mut again);
        assert_eq!(read_slice(&mut Reader::new(&again)), Ok(slice));
    }
    if let Ok((counts, stamped)) = read_stamps(&mut Reader::new(bytes)) {
        assert!(3 * stamped.len() <= bytes.len(), "no more than came");
        let mut again = Vec::new();
        put_stamps(&counts, &stamped, &mut again);
        assert_eq!(read_stamps(&mut Reader::new(&again)), Ok((counts, stamped)));
    }
});
