//! Prints the trace of a name, in its text form; without a name, the names.

use std::process::ExitCode;

use tailcut_proto::conformance::{NAMES, Trace};

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        println!("{}", NAMES.join("\n"));
        return ExitCode::SUCCESS;
    };
    let Some(trace) = Trace::named(&name) else {
        eprintln!("error: no trace is named {name}; there are {}", NAMES.join(", "));
        return ExitCode::FAILURE;
    };
    print!("{trace}");
    ExitCode::SUCCESS
}
