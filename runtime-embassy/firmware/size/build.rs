//! Links the programs by cortex-m-rt's script.
fn main() {
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    println!("cargo:rerun-if-changed=build.rs");
}
