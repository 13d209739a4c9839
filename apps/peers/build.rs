//! Aeron's library is compiled with link-time optimization by the C compiler, whose own linker
//! alone reads it.

fn main() {
    if std::env::var_os("CARGO_FEATURE_AERON").is_some() {
        println!("cargo:rustc-link-arg=-fuse-ld=bfd");
    }
}
