//! Copies memory.x to the linker's search path. Every program that depends on the board is linked
//! with it.
use std::{env, fs, io, path::PathBuf};

fn main() -> io::Result<()> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::copy("memory.x", folder.join("memory.x"))?;
    println!("cargo:rustc-link-search={}", folder.display());
    println!("cargo:rerun-if-changed=memory.x");
    Ok(())
}
