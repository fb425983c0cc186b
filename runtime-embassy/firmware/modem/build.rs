//! Links the programs with the script of cortex-m-rt.
fn main() {
    println!("cargo:rustc-link-arg-bins=-Tlink.x");
    println!("cargo:rerun-if-changed=build.rs");
}
