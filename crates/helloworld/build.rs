//! Makes Rust of the services.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tailcut_build::compile_protos("proto/helloworld.proto")?;
    tailcut_build::compile_protos("proto/trial.proto")?;
    Ok(())
}
